package app

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/util/cert"
)

// TestMetricsCertificate has the manager serve its metrics with a certificate of ours.
func TestMetricsCertificate(t *testing.T) {
	for sentence, test := range map[string]struct {
		secure string
		status int
	}{
		"secure metrics are for those who may read them": {"true", http.StatusUnauthorized},
		"others are for everybody":                       {"false", http.StatusOK},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			folder := t.TempDir()
			first := writeCertificate(t, folder)
			free := freeAddresses(t, 3)
			address, probe := free[0], free[1]
			manager := exec.CommandContext(t.Context(), os.Args[0],
				"--metrics-bind-address="+address, "--metrics-secure="+test.secure, "--metrics-cert-path="+folder,
				"--webhook-bind-address="+free[2], "--health-probe-bind-address="+probe)
			manager.Env = append(os.Environ(), asManager+"=true", "KUBECONFIG="+kubeconfigFile(t))
			g.Expect(manager.Start()).To(Succeed())
			defer func() {
				_ = manager.Process.Kill()
				_ = manager.Wait()
			}()
			g.Eventually(func() int { return status(http.Get("http://" + probe + "/readyz")) }, "30s", "50ms").Should(Equal(http.StatusOK))

			// The client believes in nothing but the one certificate.
			code, body, err := getMetrics(address, first)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(code).To(Equal(test.status))
			if test.status == http.StatusOK {
				g.Expect(body).To(ContainSubstring("\ntocsin_webhook_backlog_ratio "))
			}
			// It is read again when it is renewed.
			second := writeCertificate(t, folder)
			g.Eventually(func() error {
				_, _, err := getMetrics(address, second)
				return err
			}, "30s", "50ms").Should(Succeed())
			_, _, err = getMetrics(address, first)
			g.Expect(err).To(MatchError(ContainSubstring("certificate")))
		})
	}
}

func TestManagerFailsWithoutTheCertificate(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	manager := exec.CommandContext(ctx, os.Args[0], "--metrics-bind-address=127.0.0.1:0", "--metrics-cert-path="+t.TempDir(),
		"--webhook-bind-address="+freeAddress(t), "--health-probe-bind-address=0")
	manager.Env = append(os.Environ(), asManager+"=true", "KUBECONFIG="+kubeconfigFile(t))
	output, err := manager.CombinedOutput()
	g.Expect(string(output)).To(ContainSubstring("tls.crt: no such file"))
	g.Expect(err).To(MatchError("exit status 1"))
}

// writeCertificate makes a certificate for 127.0.0.1, as files that a Secret would be mounted as.
func writeCertificate(t *testing.T, folder string) []byte {
	t.Helper()
	g := NewWithT(t)
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	g.Expect(err).NotTo(HaveOccurred())
	for name, content := range map[string][]byte{"tls.crt": certificate, "tls.key": key} {
		// A renewal replaces files, it does not write into them.
		g.Expect(os.WriteFile(filepath.Join(folder, name+".new"), content, 0o600)).To(Succeed())
		g.Expect(os.Rename(filepath.Join(folder, name+".new"), filepath.Join(folder, name))).To(Succeed())
	}
	return certificate
}

// getMetrics reads the metrics from whoever has the certificate.
func getMetrics(address string, certificate []byte) (code int, body string, err error) {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certificate)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Get("https://" + address + "/metrics")
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}
