/*
 * Makes processes of a machine look like copies of one running process, for LD_PRELOAD: getpid tells the number in TWIN_SHIM, and the first
 * twelve random bytes that the process asks for at once are twelve letters. So are sixteen bytes, each time: they are the key of a hash.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

pid_t getpid(void)
{
	const char *pid = getenv("TWIN_SHIM");
	return pid ? atoi(pid) : 1;
}

ssize_t getrandom(void *bytes, size_t length, unsigned int flags)
{
	static int drawn;
	ssize_t (*real)(void *, size_t, unsigned int);
	if (length == 12 && !__sync_lock_test_and_set(&drawn, 1)) {
		memcpy(bytes, "same machine", length);
		return (ssize_t)length;
	}
	if (length == 16) {
		memcpy(bytes, "same key of hash", length);
		return (ssize_t)length;
	}
	*(void **)&real = dlsym(RTLD_NEXT, "getrandom");
	return real(bytes, length, flags);
}
