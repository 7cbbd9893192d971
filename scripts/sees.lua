#!lua flags=no-writes
-- Tells how many subscribers of a channel scripts see.
--
-- KEYS  1 channel; declared as a key, so that a Cluster runs the script where the channel's slot is
-- Reply the number

local told = redis.pcall('PUBSUB', 'NUMSUB', KEYS[1])
if told.err then
  return told
end
return told[2]
