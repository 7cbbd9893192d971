#!lua flags=no-writes
-- Tells who holds a key, and who waits for it in which order, for people.
--
-- KEYS  1 lock key, 2 queue
-- ARGV  1 how many waiting lockers are named at most
-- Reply {holder or nil, pttl, waiting, {locker, ...}}
--       error CONFLICT            a key is of another type

local holder = redis.pcall('GET', KEYS[1])
if type(holder) == 'table' then
  if string.find(holder.err, '^WRONGTYPE') then
    return redis.error_reply('CONFLICT lock key: the value is of another type')
  end
  return holder
end
local waiting = redis.pcall('LLEN', KEYS[2])
if type(waiting) == 'table' then
  if string.find(waiting.err, '^WRONGTYPE') then
    return redis.error_reply('CONFLICT queue: the value is of another type')
  end
  return waiting
end
local lockers, at = {}, 0
local entry = redis.pcall('LINDEX', KEYS[2], 0)
while entry and #lockers < tonumber(ARGV[1]) do
  if type(entry) == 'table' then
    return entry
  end
  local locker = string.match(entry, '^[1-9]%d* ([^ ]+)$')
  if locker then
    lockers[#lockers + 1] = locker
  else -- a gap or a marker, see hand_over.lua, or something foreign
    waiting = waiting - 1
  end
  at = at + 1
  entry = redis.pcall('LINDEX', KEYS[2], at)
end
local remaining = redis.pcall('PTTL', KEYS[1])
if type(remaining) == 'table' then
  return remaining
end
return {holder, remaining, waiting, lockers}
