package payload

import "github.com/tocsin-dev/tocsin/api/v1alpha1"

// The limits of what an alert holds. The lengths are those of the resource in api/v1alpha1, in characters
// where that counts characters; a test compares them with the generated definition.
const (
	maxDepth      = 64    // levels of objects and arrays in a payload, its own level included
	maxFormFields = 1_000 // of a form: its fields take many times the memory of the body

	maxLine        = v1alpha1.MaxLineChars // title, type, hostname, region
	maxLink        = v1alpha1.MaxLinkChars
	maxDescription = v1alpha1.MaxDescriptionChars

	maxDedupKeyBytes    = 1024 // bytes: a key is compared and hashed, not only printed
	dedupKeyPrefixBytes = 256  // of a longer key, kept in front of the hash to be readable

	maxWarnings    = 32  // warnings in one response
	maxNamesListed = 10  // names in one warning
	maxQuoted      = 100 // characters of the sender's text in one warning
)
