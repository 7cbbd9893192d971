-- Chunk: issues a fence number. A counter that is more than `slack` behind the server's clock is first set to the clock.
--
-- KEYS[3]  the fence
-- locals   of the including script:
--          slack    the accepted lag in microseconds, 0 or 10000
--          number   nil; set to the number
--          failed   nil; or set to the error to answer. At most one number has been skipped then

local time = redis.pcall('TIME')
if time.err then
  failed = time
else
  number = redis.pcall('INCR', KEYS[3])
  if type(number) == 'table' then
    failed = number
    if string.find(failed.err, '^WRONGTYPE') or string.find(failed.err, '^ERR [vi]') then -- no integer, or would overflow
      failed = redis.error_reply('CONFLICT fence: the value is not a number that a lock wrote')
    end
  else
    local clock = time[1] * 1000000 + time[2]
    if number < clock - slack then
      number = clock
      local set = redis.pcall('SET', KEYS[3], string.format('%.0f', clock))
      if set.err then
        failed = set
      end
    elseif number > 9007199254740991 then -- a double is exact up to here, and no clock reaches it before 2255
      failed = redis.pcall('DECR', KEYS[3])
      if type(failed) == 'number' then
        failed = redis.error_reply('CONFLICT fence: the number is beyond every clock')
      end
    end
  end
end
