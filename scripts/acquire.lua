#!lua
-- Takes the key if it is free and nobody who waits is heard. A free key goes to the first waiter that is heard otherwise. Sent once
-- for each locker; poll.lua answers all later questions.
--
-- KEYS  1 lock key, 2 queue, 3 fence
-- ARGV  1 the locker, 2 its lease in ms, 3 '1' to wait in the queue, else '0', 4 slack of the fence in microseconds
-- Reply number                    the locker has the key, and nobody waits (a table would cost as much as a whole command)
--       {1, number, waiting}      the locker has the key; nobody who waits is heard at the moment
--       {0, holder, pttl}         the key is busy, or free for pollers; with '1' the locker is in the queue
--       error CONFLICT            a key is of another type; nothing was written
--
-- A command that is refused before anything is written about the locker is answered as an error. So is a later one if the write
-- is undone. Then the locker is not in the store. A raised error (the server adds a position to it) leaves that open.

local call, keys, args = redis.pcall, KEYS, ARGV
local holder
local waiting = call('LLEN', keys[2])
if waiting == 0 then
  holder = call('SET', keys[1], args[1], 'NX', 'PX', args[2], 'GET')
  if not holder then
    local slack = args[4]
    if slack ~= '00000' then
      -- The key's own end tells the clock to the millisecond, in half the time of TIME. What it leaves in doubt, a number
      -- less than 1 ms from too old included, is done again exactly; the number is skipped.
      local number, ends = call('INCR', keys[3]), call('PEXPIRETIME', keys[1])
      if type(number) == 'number' and type(ends) == 'number' then
        if number > 9007199254740991 then -- not ours: as in issue.lua
          call('DECR', keys[3]) -- ignored when refused: issue.lua names it
        elseif number >= (ends - args[2] + 1) * 1000 - slack then
          return number
        end
      end
    end
    local number, failed
    -- #include issue
    if not failed then
      return number
    end
    redis.call('DEL', KEYS[1]) -- raised when refused: the key stays the locker's
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
local behind, life, refused = ARGV[3] == '1' and ARGV[2] .. ' ' .. ARGV[1], 2 * ARGV[2], nil
local remaining, channel, message, contended
if holder then
  remaining = redis.pcall('PTTL', KEYS[1])
  if type(remaining) == 'table' then
    return remaining
  end
  if not behind then
    return {0, holder, remaining}
  end
  local client = string.match(holder, '^(.+)%-[^-]*$') -- a JVM's value may have any shape
  if client and waiting == 0 then
    contended, channel, message = true, 'DLOCK:1:inbox:' .. client, 'contended ' .. holder .. ' ' .. KEYS[1]
  end
else
  local slack, caller, ended = ARGV[4], false, false
  -- #include hand_over
  if failed then
    return failed
  end
  if not winner then
    local set = redis.pcall('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
    if set.err then
      return set
    end
    if waiting > 0 then
      return {1, number, waiting}
    end
    return number
  end
  holder, remaining, channel = winner, lease, inbox
  if channel then
    behind = false -- hand_over has seen to it
    message = 'granted ' .. string.format('%.0f', number) .. ' ' .. waiting .. ' ' .. winner .. ' ' .. KEYS[1]
  end
end

if behind then
  -- #include enqueue
end
if message and not (contended and refused) then -- a grant is told whatever became of the asker
  redis.pcall('PUBLISH', channel, message)
end
if refused then
  return refused
end
return {0, holder, remaining}
