package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

func writeScript(t *testing.T, path, text string) {
	t.Helper()
	NewWithT(t).Expect(os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o700)).To(Succeed())
}

func TestFindKubectl(t *testing.T) {
	with, without := t.TempDir(), t.TempDir()
	writeScript(t, filepath.Join(with, "kubectl"), "")
	for sentence, c := range map[string]struct {
		path, beside        string
		besideServer, lacks bool
	}{
		"one on the PATH":                {path: with, beside: without},
		"two":                            {path: with, beside: with},
		"one beside kube-apiserver only": {path: without, beside: with, besideServer: true},
		"none":                           {path: without, beside: without, besideServer: true, lacks: true},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Setenv("PATH", c.path)
			t.Setenv("KUBEBUILDER_ASSETS", c.beside)
			var d demonstration
			d.findKubectl()
			NewWithT(t).Expect([]bool{d.besideServer, d.lacksKubectl}).To(Equal([]bool{c.besideServer, c.lacks}))
		})
	}
}

func TestGetKubectl(t *testing.T) {
	t.Setenv("KUBEBUILDER_ASSETS", "/assets")
	script := filepath.Join(t.TempDir(), "script")
	get := func(t *testing.T, ctx context.Context, text string) string {
		t.Helper()
		writeScript(t, script, text)
		var out bytes.Buffer
		getKubectl(ctx, script, &out)
		return out.String()
	}

	t.Run("it says that it is there", func(t *testing.T) {
		NewWithT(t).Expect(get(t, t.Context(), "echo building >&2")).To(Equal("kubectl is there: /assets/kubectl\n"))
	})

	t.Run("it says why it is not", func(t *testing.T) {
		NewWithT(t).Expect(get(t, t.Context(), "echo the disk is full >&2; exit 3")).To(Equal(
			"There is no kubectl: \"make control-plane\" failed (exit status 3), and ended with:\nthe disk is full\n"))
	})

	t.Run("it ends at once with the demonstration, and with it what the command has started", func(t *testing.T) {
		g := NewWithT(t)
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		start := time.Now()
		g.Expect(get(t, ctx, "sleep 60; echo never")).To(BeEmpty())
		g.Expect(time.Since(start)).To(BeNumerically("<", endTimeout)) // else the sleep has held the output open
	})
}
