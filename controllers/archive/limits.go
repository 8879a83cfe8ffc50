package archive

import "time"

const (
	// roundInterval is the least time between the beginnings of two rounds.
	roundInterval = 10 * time.Second

	// batchRecords and batchBytes bound what is read before it is written, and so the memory.
	batchRecords = 1000
	batchBytes   = 8 << 20

	// daysPerNamespace bounds the days, and so the objects, for which one namespace has records in a batch. Users can forge
	// the times of their alerts, and an object takes long to write.
	daysPerNamespace = 8

	// readRate is how many Incidents are read per second at most: folds have priority at the API server.
	readRate  = 500
	readBurst = 100

	// readFailures is how many Incidents may fail to be read before a round ends: the API server may be away.
	readFailures = 3

	// notesAtOnce is how many notes are written at a time.
	notesAtOnce = 8

	// callTimeout and writeTimeout bound one request to the API server and to the store. An object has about 8 MiB at most. With
	// maxRetry, they are short enough to archive within a minute after an outage.
	callTimeout  = 10 * time.Second
	writeTimeout = 30 * time.Second

	// minRetry and maxRetry bound the delay after a failure.
	minRetry = time.Second
	maxRetry = 30 * time.Second

	// combineInterval is how often small objects are combined, and combineDelay how long after its end a day counts as over.
	combineInterval = time.Hour
	combineDelay    = time.Hour

	// combineFailures is after how many failed days the others wait for the next time: the store may be unavailable.
	combineFailures = 3
)
