#!lua flags=allow-oom
-- Ends the tenure of a locker and gives the key to nobody: a mark takes the locker's place for a while. The queue stays as it is. After the end
-- of the time the key is free, and the next question about it (poll.lua, acquire.lua) gives it to the first waiter that is heard. A repeated
-- call does no harm: no other tenure has the same mark.
--
-- KEYS  1 lock key
-- ARGV  1 the locker, 2 the mark, 3 for how many ms
-- Reply 1                         the key contains the mark for so long from now. This is a write of its own each time, see acks.rs
--       {0, holder or nil}        the key contained neither (a key of another type is nobody's); nothing was written
--       any error                 nothing was written

local holder = redis.pcall('GET', KEYS[1])
if holder == ARGV[1] or holder == ARGV[2] then
  local set = redis.pcall('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
  if set.err then
    return set
  end
  return 1
end
-- #include not_ours
