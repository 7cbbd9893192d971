/*
 * Makes the system's resolver slow in one process, for LD_PRELOAD: getaddrinfo waits as many milliseconds as the file named by
 * RESOLVER_SHIM says (decimal digits), and then does what the C library does.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **found)
{
	int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
	const char *name = getenv("RESOLVER_SHIM");
	FILE *file = name ? fopen(name, "re") : NULL;
	long millis = 0;
	if (!file || fscanf(file, "%ld", &millis) != 1)
		abort();
	fclose(file);
	const struct timespec delay = { millis / 1000, millis % 1000 * 1000000 };
	nanosleep(&delay, NULL);
	*(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
	return real(node, service, hints, found);
}
