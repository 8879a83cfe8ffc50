package cli

import (
	"bytes"
	"context"
	"os"

	"golang.org/x/term"
)

// quitKeys end a live table: q as in less, and Ctrl-C, which is a key while the terminal is raw.
const quitKeys = "qQ\x03"

// untilQuit returns a context that ends when somebody at the terminal presses a key to quit, and how to give the
// terminal back.
func (p *plugin) untilQuit(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	file, isFile := p.In.(*os.File)
	if !isFile || !term.IsTerminal(int(file.Fd())) {
		return ctx, cancel
	}
	usual, err := term.MakeRaw(int(file.Fd()))
	if err != nil {
		return ctx, cancel // Ctrl-C works without it
	}
	go func() {
		key := make([]byte, 1)
		for {
			// It goes on until the process ends: nothing else reads from the terminal.
			if _, err := file.Read(key); err != nil {
				return
			}
			if bytes.ContainsAny(key, quitKeys) {
				cancel()
			}
		}
	}()
	return ctx, func() {
		cancel()
		_ = term.Restore(int(file.Fd()), usual)
	}
}
