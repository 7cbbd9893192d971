#!lua
-- Takes the key if it is free and nobody queues. Sent once for each locker; poll.lua is for all later questions.
--
-- KEYS  1 lock key, 2 queue, 3 fence
-- ARGV  1 locker, 2 lease in ms, 3 whether to wait in the queue ('1' or '0'), 4 slack of the fence in microseconds
-- Reply {1, number, waiting}      the key is the locker's
--       {0, holder, pttl}         busy; with wait the locker stands in the queue
--       error CONFLICT            a key is of another type; nothing was written

local holder
local waiting = redis.pcall('LLEN', KEYS[2])
if waiting == 0 then
  holder = redis.pcall('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2], 'GET')
  if not holder then
    local slack = ARGV[4]
    -- #include issue
    if not failed then
      return {1, number, 0}
    end
    redis.call('DEL', KEYS[1])
    return failed
  end
elseif type(waiting) == 'table' then
  if string.find(waiting.err, '^WRONGTYPE') then
    return redis.error_reply('CONFLICT queue: the value is of another type')
  end
  return waiting
else
  holder = redis.pcall('GET', KEYS[1])
end

if type(holder) == 'table' then
  if string.find(holder.err, '^WRONGTYPE') then
    return redis.error_reply('CONFLICT lock key: the value is of another type')
  end
  return holder
end

-- Cold from here on: somebody holds the key, or it is free and others stand in the queue.
local remaining, channel, message
if holder then
  remaining = redis.call('PTTL', KEYS[1])
  if ARGV[3] == '0' then
    return {0, holder, remaining}
  end
  local client = string.match(holder, '^(.+)%-[^-]*$') -- a JVM's value may have any shape
  if client and waiting == 0 then
    channel, message = 'DLOCK:1:inbox:' .. client, 'contended ' .. holder .. ' ' .. KEYS[1]
  end
else
  local slack, caller = ARGV[4], false
  -- #include hand_over
  if failed then
    return failed
  end
  if not winner then
    redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
    return {1, number, 0}
  end
  holder, remaining, channel = winner, lease, inbox
  waiting = redis.call('LLEN', KEYS[2]) + ARGV[3]
  message = 'granted ' .. string.format('%.0f', number) .. ' ' .. waiting .. ' ' .. winner .. ' ' .. KEYS[1]
end

if ARGV[3] == '1' then
  if redis.call('RPUSH', KEYS[2], ARGV[2] .. ' ' .. ARGV[1]) == 1 then
    redis.call('PEXPIRE', KEYS[2], 2 * ARGV[2])
  else
    redis.call('PEXPIRE', KEYS[2], 2 * ARGV[2], 'GT')
  end
end
if message then
  redis.pcall('PUBLISH', channel, message)
end
return {0, holder, remaining}
