package mapping

// The limits of a mapping.
const (
	// MaxAlerts is the most alerts in one payload.
	MaxAlerts = 500

	maxExpressionLength = 2048      // characters of an expression, as in the resource
	maxExpressionDepth  = 64        // levels of an expression
	maxResult           = 512 << 10 // bytes of the value of an expression, as JSON
	maxHandshake        = 1000      // characters of what a person has to do before a tool sends alerts
	maxDepth            = 64        // levels of the value of an expression

	// maxPatternInstructions is the most instructions of all compiled regular expressions in an expression, of
	// about 100 bytes each; a{1000} has a thousand.
	maxPatternInstructions = 5000
)

// The work that the expressions of a mapping may do for one payload. A unit takes about a nanosecond. It is
// counted and not measured, so that a machine that stalls does not change how an alert is read.
const (
	maxRecognitionWork = 300_000    // the conditions of all presets for a payload
	maxFindWork        = 10_000_000 // the expression that finds the alerts in a payload

	// maxAlertWork bounds all expressions for one alert. Presets of tools that send many alerts need less; a test checks it.
	maxAlertWork = 60_000

	// maxExtraWork is for alerts that need more than that. Of a payload with many alerts, each may have the
	// maxExtraShares-th part of it.
	maxExtraWork   = 10_000_000
	maxExtraShares = 4

	// groupByteWork adds to maxExtraWork for each byte of a payload of a preset with groups: what 500 alerts of 2 KiB
	// need above maxAlertWork.
	groupByteWork = 20

	pauseWork = 1_000_000 // between two pauses, see Pauser

	nodeWork        = 80  // evaluating a node of an expression
	callWork        = 100 // calling a function
	keyWork         = 300 // sorting a key of a map
	valueWork       = 10  // reading and making a byte of a value of any kind
	resultWork      = 20  // finding out what a byte of the value of a field leaves of the payload
	byteWork        = 3   // reading or writing a byte of a text
	parsedByteWork  = 3   // allocating a byte of a parsed value
	patternStepWork = 25  // an instruction of a regular expression at a byte of a text
)

// Limits of what an alert takes from outside of it.
const (
	// maxSharedBytes is how much of the payload around a list of alerts is kept with each of them, and
	// maxSharedTotal with all. What is more is kept with the first one alone.
	maxSharedBytes = 8 << 10
	maxSharedTotal = 128 << 10

	// maxContentTotal bounds the alerts of a payload, which go into one AlertEvent, with perAlert for each besides its content and
	// dedup key. What the dedup keys leave is for the contents, but never less than minContentTotal.
	maxContentTotal = 1 << 20

	// maxGroupTotal is that bound for presets with groups: 500 alerts of 2 KiB, whose descriptions are stored as the
	// field and as the annotation.
	maxGroupTotal = 3 << 20

	minContentTotal = 128 << 10
	perAlert        = 512

	maxHeaders     = 64   // request headers that expressions see
	maxHeaderValue = 1024 // bytes of each
	maxMessage     = 200  // characters of an error in a warning
)

// Limits of the compiled mappings that are remembered.
const (
	// maxCacheBytes bounds the compiled mappings of all integrations, without the presets. The largest takes about a fortieth of
	// it, usual ones a five-hundredth. Compiling one again takes milliseconds, for the largest tens of them.
	maxCacheBytes = 64 << 20

	// expressionBytes is what a compiled expression takes, nodeBytes what each of its nodes adds,
	// instructionBytes each instruction of a regular expression, and emptyProgramBytes what a program takes besides.
	expressionBytes   = 22 << 10
	nodeBytes         = 260
	instructionBytes  = 150
	emptyProgramBytes = 2 << 10

	maxVerdicts = 2 * maxCacheBytes / emptyProgramBytes // mappings that are remembered to compile, more than all programs
)
