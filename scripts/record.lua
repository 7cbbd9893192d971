#!lua
-- Writes, deletes or reads what a client says of itself.
--
-- KEYS  1 client record
-- ARGV  1 text, 2 for how many ms it is kept; the text alone, which does not matter: deletes; none: reads
-- Reply the text or nil, when it reads

if #ARGV == 2 then
  return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
end
if #ARGV == 1 then
  return redis.call('DEL', KEYS[1])
end
return redis.call('GET', KEYS[1])
