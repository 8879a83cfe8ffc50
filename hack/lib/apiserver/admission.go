package apiserver

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// SetQuota sets a quota of objects for a namespace: "count/incidents.tocsin.dev" and the like, with the largest number. nil
// removes it. What is used is always counted exactly.
func (s *Server) SetQuota(namespace, name string, hard map[string]int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := types.NamespacedName{Namespace: namespace, Name: name}
	if hard == nil {
		delete(s.quotas, key)
	} else {
		s.quotas[key] = maps.Clone(hard)
	}
}

// Rule returns why a write is denied, empty if it is not. It gets the object that is written or deleted, read-only, and is called
// under the server's lock.
type Rule func(call *Call, object map[string]any) (message string)

// denial is a rule, and with which code it denies: 0 if it is a policy.
type denial struct {
	rule Rule
	code int32
}

// Deny sets a policy, which denies with 403, as a ValidatingAdmissionPolicy with reason Forbidden and its binding of the same
// name. nil removes it.
func (s *Server) Deny(name string, rule Rule) { s.DenyWith(name, 0, rule) }

// DenyWith sets an admission webhook, which denies with a code of its choice. nil removes it.
func (s *Server) DenyWith(name string, code int32, rule Rule) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if rule == nil {
		delete(s.denials, name)
	} else {
		s.denials[name] = denial{rule, code}
	}
}

// admit asks the policies and, about a new object, the quotas. The lock is held.
func (s *Server) admit(r *request, content map[string]any) error {
	for _, name := range slices.Sorted(maps.Keys(s.denials)) {
		message, code := s.denials[name].rule(r.Call, content), s.denials[name].code
		switch {
		case message == "":
		case code != 0:
			return &apierrors.StatusError{ErrStatus: metav1.Status{
				Status: metav1.StatusFailure, Code: code, Message: fmt.Sprintf("admission webhook %q denied the request: %s", name, message),
			}}
		default:
			message = fmt.Sprintf("ValidatingAdmissionPolicy '%s' with binding '%s' denied request: %s", name, name, message)
			err := apierrors.NewForbidden(r.table.groupResource(), r.Name, errors.New(message))
			err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Message: message})
			return err
		}
	}
	if r.Verb != "create" || len(s.quotas) == 0 {
		return nil
	}
	byName := func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) }
	counted := "count/" + r.table.qualified()
	for _, key := range slices.SortedFunc(maps.Keys(s.quotas), byName) {
		hard, ok := s.quotas[key][counted]
		used := int64(len(r.table.within(r.Namespace)))
		if key.Namespace == r.Namespace && ok && used+1 > hard {
			return apierrors.NewForbidden(r.table.groupResource(), r.Name, fmt.Errorf(
				"exceeded quota: %s, requested: %s=1, used: %s=%d, limited: %s=%d", key.Name, counted, counted, used, counted, hard))
		}
	}
	return nil
}
