#!lua flags=allow-oom
-- Tells what became of a locker whose acquire was sent, and gives a free key to the first waiter that is heard. The caller counts
-- as heard.
--
-- KEYS  1 lock key, 2 queue, 3 fence
-- ARGV  1 the locker, 2 its lease in ms, 3 slack of the fence in microseconds
-- Reply {1, number, waiting}      the locker has the key, with a new number; its lease starts anew
--       {2, holder, pttl}         the locker is in the queue; the key is busy, or free for pollers
--       {3}                       neither; nothing was written
--       error CONFLICT            a key is of another type; nothing was written
--
-- A refused command is answered as an error, and the locker is where it was. hand_over.lua names the one error that is raised.

local waiting = redis.pcall('LLEN', KEYS[2])
if type(waiting) == 'table' then
  if string.find(waiting.err, '^WRONGTYPE') then
    return redis.error_reply('CONFLICT queue: the value is of another type')
  end
  return waiting
end
local holder = redis.pcall('GET', KEYS[1])
if type(holder) == 'table' then
  if string.find(holder.err, '^WRONGTYPE') then
    return redis.error_reply('CONFLICT lock key: the value is of another type')
  end
  return holder
end

local slack = ARGV[3]
if holder == ARGV[1] then
  local number, failed
  -- #include issue
  if failed then
    return failed
  end
  local set = redis.pcall('PEXPIRE', KEYS[1], ARGV[2])
  if set ~= 1 then
    return set
  end
  -- #include waiters
  return {1, number, waiting}
end

local caller, ended, behind, life, refused = ARGV[2] .. ' ' .. ARGV[1], false, false, 0, nil
local place = redis.pcall('LPOS', KEYS[2], caller)
if not place then
  return {3}
end
if place ~= 0 and type(place) == 'table' then
  return place
end

if holder then
  local set, remaining = redis.pcall('PEXPIRE', KEYS[2], 2 * ARGV[2], 'GT'), redis.pcall('PTTL', KEYS[1])
  if set ~= 1 and set ~= 0 then
    return set
  end
  if type(remaining) == 'table' then
    return remaining
  end
  local client = string.match(holder, '^(.+)%-[^-]*$') -- a JVM's value may have any shape
  if place == 1 or place == 2 then
    local marker = redis.pcall('LINDEX', KEYS[2], place - 1)
    if type(marker) == 'string' and string.find(marker, '^keep %d+ %d+$') then -- no waiter, see hand_over.lua
      place = place - 1
      local heard = redis.pcall('PUBSUB', 'NUMSUB', 'DLOCK:1:inbox:' .. (string.match(ARGV[1], '^(.+)%-') or ''))
      if not heard.err and heard[2] > 0 then -- nobody before it is unheard any more
        redis.pcall('LREM', KEYS[2], 1, marker)
      end
    end
  end
  if client and place == 0 then
    redis.pcall('PUBLISH', 'DLOCK:1:inbox:' .. client, 'contended ' .. holder .. ' ' .. KEYS[1])
  end
  return {2, holder, remaining}
end

-- The key is free. Unless it is so for pollers, somebody gets it: the caller at the latest, also past those who are unheard.
-- #include hand_over
if failed then
  return failed
end
if winner == ARGV[1] then
  return {1, number, waiting}
end
redis.pcall('PEXPIRE', KEYS[2], 2 * ARGV[2], 'GT') -- refused, the next poll says so: the winner is told first
if inbox then
  redis.pcall('PUBLISH', inbox,
    'granted ' .. string.format('%.0f', number) .. ' ' .. waiting .. ' ' .. winner .. ' ' .. KEYS[1])
end
return {2, winner, lease}
