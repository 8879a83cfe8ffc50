package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// MaxCaptureBytes is the maximum length of the contents of all requests in a RequestCapture together. etcd stores 1.5 MiB.
	MaxCaptureBytes = 1 << 20
)

// Capture says which requests of an integration are kept.
type Capture struct {
	// payloads is how many requests are kept, from 1 to 100: the newest ones, of at most 1 MiB together as they are stored.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	// +kubebuilder:validation:XValidation:rule="type(self) == int",message="must be an integer"
	// +required
	Payloads int64 `json:"payloads,omitempty"`
}

// CapturedRequest is a request as the sender sent it, without credentials.
type CapturedRequest struct {
	// time is the time at which the request was received.
	// +required
	Time Timestamp `json:"time,omitempty,omitzero"`

	// code is the status code of the answer.
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=599
	// +kubebuilder:validation:XValidation:rule="type(self) == int",message="must be an integer"
	// +required
	Code int64 `json:"code,omitempty"`

	// content is the request as HTTP/1.1 writes it, with the body decompressed: gzip of that, and base64 of gzip. Its headers and
	// parameters are those that a preset, a mapping or an API can see.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1048576
	// +required
	Content string `json:"content,omitempty"`
}

// RequestCaptureSpec has the requests.
type RequestCaptureSpec struct {
	// requests are the newest requests, in the order in which they were stored: by replica, and then by time.
	// +kubebuilder:validation:MaxItems=100
	// +listType=atomic
	// +optional
	Requests []CapturedRequest `json:"requests,omitempty"`

	// leftOut is how many requests were left out because each alone is larger than 1 MiB, or had a token in its path.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:XValidation:rule="type(self) == int",message="must be an integer"
	// +optional
	LeftOut int64 `json:"leftOut,omitempty"`
}

// RequestCapture holds the newest requests of the WebhookIntegration with the same name, which has spec.capture. It is deleted
// when that is removed.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=requestcaptures,shortName=rcap
// +kubebuilder:printcolumn:name="First",type=date,JSONPath=`.spec.requests[0].time`
// +kubebuilder:printcolumn:name="Left-Out",type=integer,JSONPath=`.spec.leftOut`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="the name may have at most 63 characters"
type RequestCapture struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec has the requests. Written by the operator.
	// +required
	Spec RequestCaptureSpec `json:"spec,omitempty,omitzero"`
}

// RequestCaptureList is a list of RequestCaptures.
//
// +kubebuilder:object:root=true
type RequestCaptureList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty,omitzero"`
	Items           []RequestCapture `json:"items"`
}
