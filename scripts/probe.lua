#!lua flags=allow-oom
-- Tells whether the key still carries a locker. Not flagged no-writes, on purpose: a demoted master must answer
-- READONLY, not old data.
--
-- KEYS  1 lock key
-- ARGV  1 locker
-- Reply 1                         the key is the locker's
--       {0, holder or nil}        it is not (a key of another type is nobody's)

local holder = redis.pcall('GET', KEYS[1])
if holder == ARGV[1] then
  return 1
end
-- #include not_ours
