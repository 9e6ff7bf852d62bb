-- What a record takes in Redis beside its answer, in bytes, as the bounds count it.
local RECORD = 256

