#!lua flags=allow-oom
-- Ends the tenure of a locker. The key goes to the first waiter that is heard, else to the next locker, else it is deleted. If a
-- gap is asked for and due, the key is left free for pollers instead (see hand_over.lua). A locker that does not hold the key
-- leaves the queue. A repeated call does no harm.
--
-- KEYS  1 lock key
--       2 queue
--       3 fence
--       4 with a gap: the key that exists while no gap is due
-- ARGV  1 the locker
--       2 its lease in ms, a space, and the slack of the fence in microseconds. They share an argument because each argument
--         costs time, and most calls need neither
--       3 with a next locker: it. Empty if there is a gap and no next locker
--       4 with a next locker: its lease in ms. Empty as above
--       5 with a gap: its length in ms
--       6 with a gap: for how many ms no other gap is due
-- Reply waiting                   the tenure has ended
--       {2, number, waiting}      it has ended; nobody is heard, so the next locker has the key
--       {3, holder, pttl}         it has ended; a waiter has the key, or it is free for pollers; the next locker is in the queue
--       {0, holder or nil}        the key was not the locker's (a key of another type is nobody's)
--       error CONFLICT            the queue or the fence is of another type; nothing was written
--
-- A command that is refused before the key has left the locker is answered as an error, and the key is still the locker's. After
-- that nothing is an error: the poll of a next locker that the queue did not take answers that it is gone. A raised error (the
-- server adds a position to it) says nothing about what was written.

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
    if type(second) == 'string' and string.find(second, '^keep %d+ %d+$') then
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
-- The last waiter takes the marker of hand_over.lua along. Until then the marker keeps the queue in being.
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
if removed > 0 and type(marker) == 'string' and string.find(marker, '^keep %d+ %d+$') then
  if redis.pcall('LLEN', KEYS[2]) == before + 1 then
    redis.pcall('LREM', KEYS[2], 1, marker)
  end
end
return {0, holder}
