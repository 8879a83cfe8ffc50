//go:build browser

package browser

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	. "github.com/onsi/gomega"
)

// picturesVariable names a folder for the picture of the page in the documents.
const picturesVariable = "TOCSIN_UI_PICTURES"

const (
	tabTimeout        = 2 * time.Minute
	eventuallyTimeout = 20 * time.Second
)

// chromium finds the browser. Without it nothing here is tested, so that is a failure.
func chromium(tb testing.TB) string {
	tb.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	tb.Fatal("there is no Chromium: on Debian, apt-get install chromium")
	return ""
}

// tab is a tab of a browser in which nothing may go wrong unseen.
type tab struct {
	*WithT
	ctx      context.Context
	mu       sync.Mutex
	troubles []string
}

func openTab(tb testing.TB) *tab {
	tb.Helper()
	allocator, cancelAllocator := chromedp.NewExecAllocator(context.Background(),
		chromedp.ExecPath(chromium(tb)), chromedp.Headless, chromedp.DisableGPU, chromedp.NoFirstRun, chromedp.NoSandbox,
		chromedp.UserDataDir(tb.TempDir()),
		chromedp.WindowSize(1200, 900), chromedp.Env("LANG=en_GB.UTF-8", "TZ=UTC"))
	browser, cancelBrowser := chromedp.NewContext(allocator)
	tb.Cleanup(func() {
		cancelBrowser()
		cancelAllocator()
	})
	one := &tab{WithT: NewWithT(tb)}
	one.Expect(chromedp.Do(browser)).To(Succeed(), "starting Chromium") // its life is that of this context: no timeout
	ctx, cancel := context.WithTimeout(browser, tabTimeout)
	tb.Cleanup(cancel)
	one.ctx = ctx
	one.SetDefaultEventuallyTimeout(eventuallyTimeout)
	one.SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	for _, enable := range []func() error{
		func() error { _, err := chromedp.Call(ctx, log.Enable, cdp.Empty{}); return err },
		func() error { _, err := chromedp.Call(ctx, runtime.Enable, cdp.Empty{}); return err },
		func() error { _, err := chromedp.Call(ctx, page.Enable, page.EnableParams{}); return err },
	} {
		one.Expect(enable()).To(Succeed())
	}
	one.Expect(chromedp.Listen(ctx, one.note)).To(Succeed())
	return one
}

// note remembers what goes wrong in the page: exceptions, what the browser logs (a policy that was broken, for
// example) and dialogs.
func (b *tab) note(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		b.troubles = append(b.troubles, e.ExceptionDetails.Text)
	case *log.EventEntryAdded:
		b.troubles = append(b.troubles, e.Entry.Text)
	case *page.EventJavascriptDialogOpening:
		b.troubles = append(b.troubles, "dialog: "+e.Message)
	}
}

// noTrouble expects that nothing went wrong.
func (b *tab) noTrouble() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.Expect(b.troubles).To(BeEmpty())
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.Expect(chromedp.Do(b.ctx, actions...)).To(Succeed())
}

// eval gives what an expression is, as text.
func (b *tab) eval(expression string) string {
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[any](expression))
	if err != nil {
		return "error: " + err.Error()
	}
	return fmt.Sprint(value)
}

func (b *tab) number(expression string) float64 {
	value, err := strconv.ParseFloat(b.eval(expression), 64)
	b.Expect(err).NotTo(HaveOccurred())
	return value
}

// titles are those in the list, in its order.
func (b *tab) titles() string {
	return b.eval(`[...document.querySelectorAll("#rows a")].map((a) => a.textContent).join("|")`)
}

func (b *tab) text(selector string) string {
	return b.eval(fmt.Sprintf(`document.querySelector(%q)?.innerText ?? "nothing"`, selector))
}

// choose sets a control of the filters, as a user does.
func (b *tab) choose(id, value string) {
	b.eval(fmt.Sprintf(`document.getElementById(%q).value = %q;
		document.getElementById(%[1]q).dispatchEvent(new Event("input", {bubbles: true})); 0`, id, value))
}

// press presses a key that writes a character, as a keyboard does: unless the page prevents it, it is written.
func (b *tab) press(key string) {
	for _, kind := range []input.DispatchKeyEventType{input.DispatchKeyEventTypeKeyDown, input.DispatchKeyEventTypeKeyUp} {
		params := input.DispatchKeyEventParams{Type: kind, Key: key}
		if kind == input.DispatchKeyEventTypeKeyDown {
			params.Text = key
		}
		_, err := chromedp.Call(b.ctx, input.DispatchKeyEvent, params)
		b.Expect(err).NotTo(HaveOccurred())
	}
}

func (b *tab) picture(name string) {
	folder := os.Getenv(picturesVariable)
	if folder == "" {
		return
	}
	image, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(os.MkdirAll(folder, 0o755)).To(Succeed())
	b.Expect(os.WriteFile(filepath.Join(folder, name), image, 0o644)).To(Succeed())
}

func (b *tab) media(scheme string) {
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}})
	b.Expect(err).NotTo(HaveOccurred())
}
