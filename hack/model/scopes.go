package main

func both(a, b kind) message    { return message{alerts: [maxIncidents]kind{a, b}, attempts: 1} }
func single(a kind) message     { return both(a, nothing) }
func retried(m message) message { m.attempts = 2; return m }
func thrice(m message) message  { m.attempts = 3; return m }
func late(m message) message    { m.attempts, m.lost = 2, true; return m }
func keyed(m message) message   { m.keyed = true; return m }

// scopes are the configurations that together cover the protocol. Each stresses one mechanism: first leaders and caches that are
// behind, then requests that are sent again and batches, Incidents that the API server refuses or for which there is no room,
// and Incidents that users or the retention delete.
var scopes = []scope{{
	name:      "two leaders",
	messages:  []message{single(firing), single(resolve), single(firing)},
	processes: 2, capacity: 2,
}, {
	name:      "stale caches and lost answers",
	messages:  []message{single(firing), single(resolve), single(firing)},
	processes: 2, capacity: 2, lag: true,
	left: left{crashes: 1},
}, {
	name:      "Incidents created by old caches",
	messages:  []message{single(firing), single(resolve)},
	processes: 2, capacity: 2,
	left: left{crashes: 1, evictions: 1, hasty: 2},
}, {
	name:      "caches that list anew",
	messages:  []message{single(firing), single(resolve), single(firing)},
	processes: 1, capacity: 2, relist: true, gap: true,
	left: left{crashes: 2},
}, {
	name:      "a resolve first",
	messages:  []message{single(resolve), single(firing)},
	processes: 2, capacity: 2, relist: true,
	left: left{crashes: 1},
}, {
	name:      "second copies",
	messages:  []message{retried(single(firing))},
	processes: 2, capacity: 2, gap: true,
	left: left{crashes: 1, terms: 1},
}, {
	name:      "second copies of a batch",
	messages:  []message{retried(both(firing, firing))},
	processes: 2, capacity: 1, refused: one(1),
	left: left{crashes: 1},
}, {
	name:      "an alert behind a retry",
	messages:  []message{late(single(firing)), single(resolve)},
	processes: 1, capacity: 2,
	left: left{crashes: 1},
}, {
	name:      "a batch of two Incidents",
	messages:  []message{both(firing, firing), both(nothing, resolve)},
	processes: 2, capacity: 2,
	left: left{crashes: 1},
}, {
	name:      "an Incident is refused",
	messages:  []message{both(firing, firing), both(resolve, firing), both(firing, resolve)},
	processes: 1, capacity: 2, refused: one(1), bare: one(1),
	left: left{crashes: 1},
}, {
	name:      "an Incident is refused, and two lead",
	messages:  []message{both(firing, firing), both(resolve, nothing)},
	processes: 2, capacity: 1, refused: one(1),
	left: left{crashes: 1},
}, {
	name:      "an Incident is refused, and a resolve comes first",
	messages:  []message{both(resolve, firing), single(firing), single(resolve)},
	processes: 1, capacity: 1, refused: one(1),
	left: left{crashes: 1},
}, {
	name:      "an Incident is refused in between",
	messages:  []message{both(firing, firing), both(resolve, resolve), single(firing)},
	processes: 1, capacity: 1,
	left: left{crashes: 1, refusals: 1},
}, {
	name:      "events are marked whose marks nothing needs",
	messages:  []message{both(firing, firing), both(resolve, nothing)},
	processes: 2, capacity: 2, refused: one(1), patience: true,
}, {
	name:      "an Incident makes room",
	messages:  []message{both(resolve, firing), both(nothing, resolve)},
	processes: 2, capacity: 2, opened: one(0), limit: 1,
	left: left{crashes: 1, evictions: 1},
}, {
	name:      "users delete Incidents",
	messages:  []message{keyed(single(firing)), single(resolve), single(firing)},
	processes: 1, capacity: 2,
	left: left{crashes: 1, deletions: 1},
}, {
	name:      "users delete Incidents, and two lead",
	messages:  []message{single(firing), single(resolve)},
	processes: 2, capacity: 2,
	left: left{deletions: 1},
}, {
	name:      "users delete Incidents of a batch",
	messages:  []message{both(firing, firing), single(resolve)},
	processes: 1, capacity: 2, refused: one(1),
	left: left{crashes: 1, deletions: 1},
}, {
	name:      "retention",
	messages:  []message{both(firing, firing), single(resolve)},
	processes: 2, capacity: 2, refused: one(1),
	left: left{evictions: 1},
}, {
	name:      "users delete events",
	messages:  []message{both(firing, firing), single(resolve)},
	processes: 2, capacity: 2, refused: one(1),
	left: left{removals: 1},
}, {
	name:      "users and the time change Incidents",
	messages:  []message{single(firing), single(resolve)},
	processes: 2, capacity: 2, lag: true,
	left: left{rewrites: 1, touches: 1},
}}

// longScopes are larger ones, for a run of many minutes.
var longScopes = []scope{{
	name:      "long: two leaders of four posts",
	messages:  []message{single(firing), single(resolve), single(firing), single(resolve)},
	processes: 2, capacity: 2,
	left: left{crashes: 1},
}, {
	name:      "long: a resolve first",
	messages:  []message{single(resolve), single(firing), single(resolve)},
	processes: 2, capacity: 2, relist: true, gap: true,
	left: left{crashes: 1},
}, {
	name:      "long: an alert behind a retry",
	messages:  []message{retried(single(firing)), single(resolve)},
	processes: 2, capacity: 2, gap: true,
	left: left{crashes: 1},
}, {
	name:      "long: second copies of a batch",
	messages:  []message{retried(both(firing, firing))},
	processes: 2, capacity: 1, refused: one(1), gap: true,
	left: left{crashes: 1, terms: 1},
}, {
	name:      "long: three attempts",
	messages:  []message{thrice(single(firing))},
	processes: 2, capacity: 2, gap: true,
	left: left{crashes: 1},
}, {
	name:      "long: a batch of two Incidents",
	messages:  []message{both(firing, firing), both(resolve, resolve)},
	processes: 2, capacity: 2,
	left: left{crashes: 1},
}, {
	name:      "long: an Incident is refused in between, and two lead",
	messages:  []message{both(firing, firing), both(resolve, firing)},
	processes: 2, capacity: 1, bare: one(1),
	left: left{crashes: 1, refusals: 1},
}, {
	name:      "long: users delete Incidents, and two lead",
	messages:  []message{keyed(single(firing)), single(resolve)},
	processes: 2, capacity: 2,
	left: left{crashes: 1, deletions: 1},
}, {
	name:      "long: retention",
	messages:  []message{keyed(both(firing, firing)), single(resolve), single(firing)},
	processes: 2, capacity: 2, refused: one(1),
	left: left{evictions: 1},
}}
