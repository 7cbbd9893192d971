#!lua flags=allow-oom
-- Starts the lease of a locker anew. On demand it reserves a range of fence numbers.
--
-- KEYS  1 lock key, 2 queue, 3 fence
-- ARGV  1 the locker, 2 its lease in ms, 3 '1' to reserve numbers, else '0', 4 slack of the fence in microseconds
-- Reply waiting                   the lease is extended
--       {1, waiting, low, high}   the same; the numbers from low to high are the caller's alone
--       {0, holder or nil}        the key is not the locker's (a key of another type is nobody's); nothing was written
--       any error                 nothing was written
--
-- A queue or a fence of another type does not end a lease: then the reply says that nobody waits, or has no numbers.

local holder = redis.pcall('GET', KEYS[1])
if holder == ARGV[1] then
  local extended = redis.pcall('PEXPIRE', KEYS[1], ARGV[2])
  if extended ~= 1 then
    return extended
  end
  local waiting = redis.pcall('LLEN', KEYS[2])
  if type(waiting) == 'table' then
    waiting = 0
  end
  -- #include waiters
  if ARGV[3] == '0' then
    return waiting
  end

  local time = redis.pcall('TIME')
  local fence = redis.pcall('GET', KEYS[3]) or '0'
  if time.err or type(fence) == 'table' or not string.find(fence, '^%d+$') then
    return waiting
  end
  local clock = time[1] * 1000000 + time[2]
  local last = tonumber(fence)
  if last >= clock then
    return waiting
  end
  local set = redis.pcall('SET', KEYS[3], string.format('%.0f', clock))
  if set.err then
    return waiting
  end
  -- A fence behind the clock may have been lost: numbers of the last moments may be another key's already. None is this
  -- key's, but its holder's own and smaller ones, which the holder drops.
  return {1, waiting, math.max(last, clock - math.max(ARGV[4], 1)) + 1, clock}
end

-- #include not_ours
