package replica

// Condense is for the cache: it makes an Incident or a WebhookIntegration small. A second transform of the same object changes
// nothing. Memory has the one of AlertEvents.
func Condense(object any) (any, error) {
	if large, ok := object.(interface{ Condense() }); ok {
		large.Condense()
	}
	return object, nil
}
