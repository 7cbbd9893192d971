#!lua flags=no-writes
-- Tells by whom a locker's hold was broken, and why: see break.lua. Asked only by a locker that has found its key gone or another's.
--
-- KEYS  1 the key that says it
-- Reply a text, or nil

return redis.pcall('GET', KEYS[1])
