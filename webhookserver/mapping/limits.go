package mapping

// The limits of a mapping and of what it may do with one payload. The work of an expression is counted as
// Kubernetes counts it, in units of cost; a unit takes up to 200 ns. They are counts rather than times so
// that a machine that stalls does not change how an alert is read.
const (
	// MaxAlerts is the most alerts in one payload.
	MaxAlerts = 500

	// maxExpressionLength is the most characters of an expression, as in the resource.
	maxExpressionLength = 2048

	// maxExpressionDepth is how deep an expression may nest.
	maxExpressionDepth = 64

	// maxOptMaps is the most optMap and optFlatMap in an expression: each doubles what it is called on.
	maxOptMaps = 4

	// maxExpressionCost bounds one evaluation of one expression.
	maxExpressionCost = 50_000

	// maxPayloadCost bounds the expression that finds the alerts in a payload.
	maxPayloadCost = 60_000

	// maxAlertCost is what all expressions for one alert may cost, whatever the others of its payload cost. Those
	// of a preset for a tool that sends many alerts at a time cost less; a test sees to it.
	maxAlertCost = 400

	// maxExtraCost is for alerts that cost more than that. Of a payload with many alerts, each may have the
	// maxExtraShares-th part of it.
	maxExtraCost   = 60_000
	maxExtraShares = 4

	// maxTotalCost bounds all expressions for a payload, what they cost beyond their limits included: a function
	// is counted when it has returned. It is more than all alerts may cost, and only reached when the expressions
	// of very many are stopped.
	maxTotalCost = 800_000

	// interruptFrequency is the number of rounds of a loop between two looks at the clock.
	interruptFrequency = 64
)

// Limits of single functions, which the count of cost sees only when they have returned.
const (
	// maxText is the most bytes that a function may give.
	maxText = 512 << 10

	// maxParsed is the most bytes of memory that the value of parseJSON may take.
	maxParsed = 4 << 20

	// maxPattern is the most bytes of a regular expression.
	maxPattern = 1024

	// maxPatternInstructions is the most instructions of one when it is compiled, a{1000} has a thousand. What is
	// remembered of compiled ones is bounded by their number and by their instructions, of about 100 bytes each.
	maxPatternInstructions    = 20_000
	maxPatternsRemembered     = 512
	maxInstructionsRemembered = 200_000

	// maxPatternWork is the most steps that a regular expression may take: the bytes of the text times the
	// instructions of the compiled expression.
	maxPatternWork = 1 << 19

	// maxPatternMatches is the most matches that findAll looks for.
	maxPatternMatches = 1000

	// maxPairs bounds a function that compares each element with each: the bytes of the one list times those
	// of the other.
	maxPairs = 1 << 20

	// maxSorted is the most elements that are sorted.
	maxSorted = 4096

	// maxRange is the most elements of lists.range.
	maxRange = 10_000

	// maxDepth is how deep a value may nest that an expression gives or parseJSON reads.
	maxDepth = 64
)

// Limits of what an alert takes from outside of it.
const (
	// maxSharedBytes is how much of the payload around a list of alerts is kept with each of them, and
	// maxSharedTotal with all. What is more is kept with the first one alone.
	maxSharedBytes = 8 << 10
	maxSharedTotal = 128 << 10

	// maxContentTotal bounds the alerts of a payload as they are stored, with perAlert for each besides its
	// content and dedup key. They go into one AlertEvent, for which the server takes 1 MiB. What the dedup
	// keys leave is for the contents, but never less than minContentTotal.
	maxContentTotal = 1 << 20
	minContentTotal = 128 << 10
	perAlert        = 512

	maxHeaders     = 64   // request headers that expressions see
	maxHeaderValue = 1024 // bytes of each

	maxMessage = 200 // characters of an error in a warning
)

// Limits of the compiled mappings that are remembered.
const (
	// maxCacheBytes bounds the compiled mappings of all integrations, without the presets. The largest mapping
	// takes about a fortieth of it, usual ones a five-hundredth. One that was forgotten is compiled again when
	// it is used, which takes milliseconds, for the largest tens of them.
	maxCacheBytes = 64 << 20

	// expressionBytes is what a compiled expression takes, nodeBytes what each of its nodes adds, and
	// emptyProgramBytes what a program takes besides.
	expressionBytes   = 22 << 10
	nodeBytes         = 260
	emptyProgramBytes = 2 << 10

	// maxVerdicts is how many mappings are remembered to compile, or not to.
	maxVerdicts = 20_000
)
