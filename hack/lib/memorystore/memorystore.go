// Package memorystore is an API server for tests that keeps AlertEvents in memory and fails as it is told to.
package memorystore

import (
	"context"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// AlertEvents is the resource that the store's errors name.
var AlertEvents = schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "alertevents"}

// Store implements commit.Store.
type Store struct {
	// Before and After are called around the storing of each create, with its number; an error of theirs is the answer.
	Before, After func(ctx context.Context, event *v1alpha1.AlertEvent, call int) error
	OnGet         func(name string) error

	mu     sync.Mutex
	events []*v1alpha1.AlertEvent
	calls  int
}

// Create implements commit.Store.
func (s *Store) Create(ctx context.Context, event *v1alpha1.AlertEvent) error {
	s.mu.Lock()
	s.calls++
	call := s.calls
	s.mu.Unlock()
	if s.Before != nil {
		if err := s.Before(ctx, event, call); err != nil {
			return err
		}
	}
	if err := s.put(event); err != nil {
		return err
	}
	if s.After != nil {
		return s.After(ctx, event, call)
	}
	return nil
}

func (s *Store) put(event *v1alpha1.AlertEvent) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.find(event.Name) >= 0 {
		return apierrors.NewAlreadyExists(AlertEvents, event.Name)
	}
	s.events = append(s.events, event.DeepCopy())
	return nil
}

func (s *Store) find(name string) int {
	return slices.IndexFunc(s.events, func(e *v1alpha1.AlertEvent) bool { return e.Name == name })
}

// Get implements commit.Store.
func (s *Store) Get(_ context.Context, _, name string) (*v1alpha1.AlertEvent, error) {
	if s.OnGet != nil {
		if err := s.OnGet(name); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.find(name); n >= 0 {
		return s.events[n].DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(AlertEvents, name)
}

// Calls returns how often Create was called.
func (s *Store) Calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// Stored returns the AlertEvents that were stored, in order.
func (s *Store) Stored() []*v1alpha1.AlertEvent {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.events)
}

// FailAlways answers every create with the error.
func FailAlways(err error) func(context.Context, *v1alpha1.AlertEvent, int) error {
	return func(context.Context, *v1alpha1.AlertEvent, int) error { return err }
}

// FailFirst answers the first creates, each with one of the errors.
func FailFirst(failures ...error) func(context.Context, *v1alpha1.AlertEvent, int) error {
	return func(_ context.Context, _ *v1alpha1.AlertEvent, call int) error {
		if call <= len(failures) {
			return failures[call-1]
		}
		return nil
	}
}

// ServerError makes an answer of the API server.
func ServerError(code int32, reason metav1.StatusReason, message string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}}
}

// SchemaError makes the answer to an object whose fields the schema does not allow.
func SchemaError(fields ...string) error {
	err := ServerError(422, metav1.StatusReasonInvalid,
		`AlertEvent.tocsin.dev "secret-name" is invalid: spec.alerts[0].title: Invalid value: "it denied the request"`)
	err.ErrStatus.Details = &metav1.StatusDetails{Kind: "AlertEvent"}
	for _, field := range fields {
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes,
			metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: field, Message: "secret words"})
	}
	return err
}
