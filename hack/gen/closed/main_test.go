package main

import (
	"testing"

	. "github.com/onsi/gomega"
)

func TestObjectsAreClosed(t *testing.T) {
	g := NewWithT(t)
	const open = `schema:
  properties:
    bag:
      type: object
      x-kubernetes-preserve-unknown-fields: true
    match:
      minProperties: 1
      properties:
        labels:
          type: object
        severities:
          type: array
      type: object
      x-kubernetes-preserve-unknown-fields: true
`
	closed, err := closeSchemas([]byte(open))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(closed)).To(Equal(`---
schema:
  properties:
    bag:
      type: object
      x-kubernetes-preserve-unknown-fields: true
    match:
      minProperties: 1
      oneOf:
      - maxProperties: 1
        required:
        - labels
      - maxProperties: 1
        required:
        - severities
      - maxProperties: 2
        required:
        - labels
        - severities
      properties:
        labels:
          type: object
        severities:
          type: array
      type: object
      x-kubernetes-preserve-unknown-fields: true
`))
	again, err := closeSchemas(closed)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(again).To(Equal(closed), "a second run changes nothing")
}

func TestWhatNeedsNothingStaysAsItIs(t *testing.T) {
	g := NewWithT(t)
	const text = "a: 1 # as it was\n"
	closed, err := closeSchemas([]byte(text))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(closed)).To(Equal(text))
	_, err = closeSchemas([]byte("{minProperties: 1, x-kubernetes-preserve-unknown-fields: true, " +
		"properties: {a: {}, b: {}, c: {}, d: {}, e: {}}}"))
	g.Expect(err).To(MatchError("5 keys make too many sets"))
}
