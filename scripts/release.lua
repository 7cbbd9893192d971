#!lua flags=allow-oom
-- Ends the tenure of a locker: the key goes to the first waiter that is heard, else to the next locker, else it is deleted.
-- Now and then, if asked to, it leaves the key free for a while for those that only poll (see hand_over.lua).
-- A locker that does not hold the key is taken out of the queue. Safe to repeat.
--
-- KEYS  1 lock key, 2 queue, 3 fence, and with a gap: 4 what keeps the time since the last one
-- ARGV  1 locker, 2 its lease in ms and the slack of the fence in microseconds, parted by a blank (mostly neither is needed,
--       and each argument costs time), and with a next locker: 3 it, 4 its lease in ms, and with a gap (then 3 and 4 may be
--       empty): 5 its length in ms, 6 how long there is no other one, in ms
-- Reply waiting                   released
--       {2, number, waiting}      nobody is heard: the key is with the next locker
--       {3, holder, pttl}         a waiter has the key, or it is free for pollers; the next locker stands at the queue's end
--       {0, holder or nil}        was not the locker's (a key of another type is nobody's)
--       error CONFLICT            the queue or the fence is of another type; nothing was written
--
-- Until the key has left the locker, a refused command is answered as the error that it is: the key is the locker's still.
-- After that nothing is an error any more: a next locker that the queue did not take is found to be gone by its poll. A
-- raised error (the server adds a position to it) leaves open what was written.

local call, keys, args = redis.pcall, KEYS, ARGV
local holder = call('GET', keys[1])
if holder == args[1] then
  local waiting = call('LLEN', keys[2])
  if waiting == 0 and not args[3] then
    local freed = call('DEL', keys[1])
    if freed == 1 then
      return 0
    end
    return freed
  end
  if type(waiting) == 'table' then
    if string.find(waiting.err, '^WRONGTYPE') then
      return redis.error_reply('CONFLICT queue: the value is of another type')
    end
    return waiting
  end

  local slack, caller, ended, next_locker = string.match(ARGV[2], ' (%d+)$'), false, ARGV[1], ARGV[3]
  if KEYS[4] then
    if next_locker == '' then
      next_locker = nil
    end
    local time = redis.pcall('TIME')
    if time.err then
      return time
    end
    local due = redis.pcall('SET', KEYS[4], '1', 'NX', 'PX', ARGV[6])
    if due then
      if due.err then
        return due
      end
      local ends = time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[5]
      local entries = redis.pcall('LPUSH', KEYS[2], string.format('gap %.0f %.0f', ends, ARGV[5]))
      local set = entries
      if entries == 1 then
        set = redis.pcall('PEXPIRE', KEYS[2], ARGV[5])
      elseif type(entries) == 'number' then
        set = redis.pcall('PEXPIRE', KEYS[2], ARGV[5], 'GT')
      end
      if type(set) == 'table' then
        if type(entries) == 'number' then
          redis.call('LPOP', KEYS[2])
        end
        redis.pcall('DEL', KEYS[4])
        return set
      end
      local removed = 0
      if waiting > 0 then -- an entry of its own, which hand_over does not look for behind a gap
        removed = redis.pcall('LREM', KEYS[2], 0, string.match(ARGV[2], '^%d+ ') .. ARGV[1])
      end
      waiting = type(removed) == 'number' and entries - removed or entries
    end
  end

  if waiting == 0 then
    -- Without a next locker only a gap that is not due leads here.
    if not next_locker then
      local freed = redis.pcall('DEL', KEYS[1])
      if freed == 1 then
        return 0
      end
      return freed
    end
    local number, failed
    -- #include issue
    if failed then
      return failed
    end
    local set = redis.pcall('SET', KEYS[1], next_locker, 'PX', ARGV[4])
    if set.err then
      return set
    end
    return {2, number, 0}
  end

  local behind, life, refused = false, 0, nil
  if next_locker then
    behind, life = ARGV[4] .. ' ' .. next_locker, 2 * ARGV[4]
  end
  -- #include hand_over
  if failed then
    return failed
  end
  if not winner then -- nobody is heard
    if not next_locker then
      local freed = redis.pcall('DEL', KEYS[1])
      if freed == 1 then
        return waiting
      end
      return freed
    end
    local set = redis.pcall('SET', KEYS[1], next_locker, 'PX', ARGV[4])
    if set.err then
      return set
    end
    return {2, number, waiting}
  end
  if inbox then
    redis.pcall('PUBLISH', inbox,
      'granted ' .. string.format('%.0f', number) .. ' ' .. waiting .. ' ' .. winner .. ' ' .. KEYS[1])
  else -- free for pollers
    local freed = redis.pcall('DEL', KEYS[1])
    if type(freed) == 'table' then
      return freed
    end
    if behind then
      -- #include enqueue
    end
    local second = redis.pcall('LINDEX', KEYS[2], 1)
    waiting = waiting - 1
    if type(second) == 'string' and string.find(second, '^keep %d+$') then
      waiting = waiting - 1
    end
  end
  if next_locker then
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
-- The marker of hand_over is nobody's when the last waiter goes. It keeps the queue until then.
local before, marker = 0, redis.pcall('LINDEX', KEYS[2], 0)
if type(marker) == 'string' and string.find(marker, '^gap %d+ %d+$') then
  before, marker = 1, redis.pcall('LINDEX', KEYS[2], 1)
end
local removed = redis.pcall('LREM', KEYS[2], 0, string.match(ARGV[2], '^%d+ ') .. ARGV[1])
if type(removed) == 'table' then
  if string.find(removed.err, '^WRONGTYPE') then
    return redis.error_reply('CONFLICT queue: the value is of another type')
  end
  return removed
end
if removed > 0 and type(marker) == 'string' and string.find(marker, '^keep %d+$') then
  if redis.pcall('LLEN', KEYS[2]) == before + 1 then
    redis.pcall('LREM', KEYS[2], 1, marker)
  end
end
return {0, holder}
