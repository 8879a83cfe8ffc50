package main

import (
	"bytes"
	"context"
	"fmt"
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

// folderWith returns a folder with a kubectl of a minor version, beside an API server of 1.37, or without one if that is empty.
func folderWith(t *testing.T, minor string) string {
	t.Helper()
	folder := t.TempDir()
	if minor != "" {
		writeScript(t, filepath.Join(folder, "kubectl"), fmt.Sprintf(
			`echo '{"clientVersion": {"major": "1", "minor": %q}, "serverVersion": {"major": "1", "minor": "37+"}}'`, minor))
	}
	return folder
}

func TestFindKubectl(t *testing.T) {
	for _, c := range []struct {
		path, beside string // the minor versions of kubectl; empty: none
		want         kubectl
	}{
		{"", "", kubectlLacks},
		{"37", "", kubectlOfPath},
		{"36", "37", kubectlOfPath},
		{"38+", "", kubectlOfPath},
		{"35", "37", kubectlBesideServer},
		{"", "37", kubectlBesideServer},
		{"39", "", kubectlLacks},
		{"", "30", kubectlLacks},
		{"unknown", "", kubectlLacks},
	} {
		t.Run(fmt.Sprintf("PATH %q, beside kube-apiserver %q", c.path, c.beside), func(t *testing.T) {
			g := NewWithT(t)
			t.Setenv("PATH", folderWith(t, c.path))
			t.Setenv("KUBEBUILDER_ASSETS", folderWith(t, c.beside))
			g.Expect(findKubectl(t.Context(), "kubeconfig")).To(Equal(c.want))
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
