// Package controllers folds AlertEvents into Incidents.
package controllers
