#!lua flags=allow-oom
-- Starts the lease of a locker anew, as extend.lua does, by means of the lock key alone. Sent to a node of a Redis Cluster while the
-- slot moves to another node: a script that declares several keys is refused then, and one that declares a single key is not.
--
-- KEYS  1 lock key
-- ARGV  1 the locker, 2 its lease in ms
-- Reply 1                         the lease is extended. Nobody looks at the queue; the reply counts as if one tenure waited
--       {0, holder or nil}        the key is not the locker's (a key of another type is nobody's); nothing was written
--       any error                 nothing was written

local holder = redis.pcall('GET', KEYS[1])
if holder == ARGV[1] then
  return redis.pcall('PEXPIRE', KEYS[1], ARGV[2])
end
-- #include not_ours
