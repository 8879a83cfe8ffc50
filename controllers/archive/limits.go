package archive

import "time"

// Limits and delays of the archiving.
const (
	// flushInterval is how often new records are written.
	flushInterval = 10 * time.Second

	// batchRecords and batchBytes bound what is read before it is written, and so the memory.
	batchRecords = 1000
	batchBytes   = 8 << 20

	// daysPerNamespace bounds the days, and so the objects, for which one namespace has records in a batch. Users can forge
	// the times of their alerts, and an object takes long to write.
	daysPerNamespace = 8

	// readRate is how many Incidents are read per second at most: folds have priority at the API server.
	readRate  = 500
	readBurst = 100

	// readTimeout and writeTimeout bound one request to the API server and to the store. An object has 8 MiB at most. With
	// maxRetry, they are short enough to archive within a minute after an outage.
	readTimeout  = 10 * time.Second
	writeTimeout = 30 * time.Second

	// maintenanceTimeout bounds the reading or combining of a day.
	maintenanceTimeout = 10 * time.Minute

	// minRetry and maxRetry bound the delay after a failure.
	minRetry = time.Second
	maxRetry = 30 * time.Second

	// failurePatience is how long the store may fail before the condition Archived tells so.
	failurePatience = time.Minute

	// combineInterval is how often days are looked through for small objects, combineDelay how long after its end a day
	// counts as over, and combineDays how many past days are looked through.
	combineInterval = time.Hour
	combineDelay    = time.Hour
	combineDays     = 3

	// combineFailures is after how many failed days the others wait for the next time: the store may be unavailable.
	combineFailures = 3
)
