#!lua flags=allow-oom
-- Takes the key from a locker that was seen to hold it, because an operator wants that. The key goes to the first waiter that is heard;
-- if nobody is, it is deleted. A repeated or a late call does no harm: no locker holds a key twice.
--
-- KEYS  1 lock key, 2 queue, 3 fence, 4 the key that tells the locker by whom its hold was broken, and why. It may be left out
-- ARGV  1 the locker, 2 what the fourth key is to say; empty if there is none, or if nothing is to be said, 3 slack of the fence in microseconds
-- Reply {1, holder or nil, waiting}   the key was the locker's; who has it now
--       {0, holder or nil}            it was not (a key of another type is nobody's); nothing was written
--       error CONFLICT                the queue or the fence is of another type; nothing was written
--
-- A command that is refused before the key has left the locker is answered as an error, and the key is still the locker's. After that
-- nothing is an error: a locker that cannot be told finds the key gone, or another's. A raised error (the server adds a position to it)
-- says nothing about what was written.

local holder = redis.pcall('GET', KEYS[1])
if holder ~= ARGV[1] then
  if type(holder) == 'table' then
    if not string.find(holder.err, '^WRONGTYPE') then
      return holder
    end
    holder = '(a value of another type)'
  end
  return {0, holder}
end
local waiting = redis.pcall('LLEN', KEYS[2])
if type(waiting) == 'table' then
  if string.find(waiting.err, '^WRONGTYPE') then
    return redis.error_reply('CONFLICT queue: the value is of another type')
  end
  return waiting
end
-- By its own deadline the locker knows without being told. Who gave the order looks for it after a lost reply, for less than a minute.
local left = redis.pcall('PTTL', KEYS[1])
if type(left) == 'table' then
  return left
end
if left < 60000 then -- a key without a lease, too, which no lock of this version writes
  left = 60000
end

local given = false
if waiting > 0 then
  local slack, caller, ended, behind, life, refused = ARGV[3], false, ARGV[1], false, 0, nil
  -- #include hand_over
  if failed then
    return failed
  end
  if winner and inbox then
    given = winner
    redis.pcall('PUBLISH', inbox,
      'granted ' .. string.format('%.0f', number) .. ' ' .. waiting .. ' ' .. winner .. ' ' .. KEYS[1])
  elseif winner then -- free for pollers: one of them has taken the key in the gap, and is the one that is broken
    local second = redis.pcall('LINDEX', KEYS[2], 1)
    waiting = waiting - 1
    if type(second) == 'string' and string.find(second, '^keep %d+ %d+$') then
      waiting = waiting - 1
    end
  end
end
if not given then
  local freed = redis.pcall('DEL', KEYS[1])
  if type(freed) == 'table' then
    return freed
  end
end

if ARGV[2] ~= '' then
  redis.pcall('SET', KEYS[4], ARGV[2], 'PX', left)
end
local client = string.match(ARGV[1], '^(.+)%-[^-]*$') -- a JVM's value may have any shape
if client then
  redis.pcall('PUBLISH', 'DLOCK:1:inbox:' .. client, 'broken ' .. ARGV[1] .. ' ' .. KEYS[1])
end
return {1, given, waiting}
