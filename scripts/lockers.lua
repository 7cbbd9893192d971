#!lua flags=no-writes
-- Tells who holds a key, and who waits for it in which order, for people.
--
-- KEYS  1 lock key, 2 queue
-- ARGV  1 how many waiting lockers are named at most
-- Reply {holder or nil, pttl, waiting, {locker, ...}}
--       error CONFLICT            a key is of another type

-- #include look
local lockers, at = {}, 0
while #lockers < tonumber(ARGV[1]) do
  local entry = redis.pcall('LINDEX', KEYS[2], at)
  if not entry then
    break
  end
  if type(entry) == 'table' then
    return entry
  end
  local locker = string.match(entry, '^[1-9]%d* ([^ ]+)$')
  if locker then -- else a gap or a marker, see hand_over.lua, or something foreign
    lockers[#lockers + 1] = locker
  end
  at = at + 1
end
return {holder, remaining, waiting, lockers}
