#!lua flags=allow-oom
-- Ends the tenure of a locker: the key goes to the first live waiter, else to the next locker, else it is deleted.
-- A locker that does not hold the key is taken out of the queue. Safe to repeat.
--
-- KEYS  1 lock key, 2 queue, 3 fence
-- ARGV  1 locker, 2 its lease in ms, 3 slack of the fence in microseconds, and with a next locker: 4 it, 5 its lease in ms
-- Reply waiting                   released
--       {2, number, 0}            nobody waits: the key is with the next locker
--       {3, holder, pttl}         a waiter has the key; the next locker stands at the queue's end
--       {0, holder or nil}        was not the locker's (a key of another type is nobody's)
--       error CONFLICT            the queue or the fence is of another type; nothing was written

local holder = redis.pcall('GET', KEYS[1])
if holder == ARGV[1] then
  local waiting = redis.pcall('LLEN', KEYS[2])
  if waiting == 0 and not ARGV[4] then
    redis.call('DEL', KEYS[1])
    return 0
  end
  if type(waiting) == 'table' then
    if string.find(waiting.err, '^WRONGTYPE') then
      return redis.error_reply('CONFLICT queue: the value is of another type')
    end
    return waiting
  end

  local slack = ARGV[3]
  if waiting == 0 then
    -- #include issue
    if failed then
      return failed
    end
    redis.call('SET', KEYS[1], ARGV[4], 'PX', ARGV[5])
    return {2, number, 0}
  end

  local caller = false
  -- #include hand_over
  if failed then
    return failed
  end
  if not winner then -- all were dead, the queue is empty
    if not ARGV[4] then
      redis.call('DEL', KEYS[1])
      return 0
    end
    redis.call('SET', KEYS[1], ARGV[4], 'PX', ARGV[5])
    return {2, number, 0}
  end
  if ARGV[4] then
    if redis.call('RPUSH', KEYS[2], ARGV[5] .. ' ' .. ARGV[4]) == 1 then
      redis.call('PEXPIRE', KEYS[2], 2 * ARGV[5])
    else
      redis.call('PEXPIRE', KEYS[2], 2 * ARGV[5], 'GT')
    end
  end
  waiting = redis.call('LLEN', KEYS[2])
  redis.pcall('PUBLISH', inbox,
    'granted ' .. string.format('%.0f', number) .. ' ' .. waiting .. ' ' .. winner .. ' ' .. KEYS[1])
  if ARGV[4] then
    return {3, winner, lease}
  end
  return waiting
end

if type(holder) == 'table' then
  if not string.find(holder.err, '^WRONGTYPE') then
    return holder
  end
  holder = '(a value of another type)'
end
local removed = redis.pcall('LREM', KEYS[2], 0, ARGV[2] .. ' ' .. ARGV[1])
if type(removed) == 'table' then
  if string.find(removed.err, '^WRONGTYPE') then
    return redis.error_reply('CONFLICT queue: the value is of another type')
  end
  return removed
end
return {0, holder}
