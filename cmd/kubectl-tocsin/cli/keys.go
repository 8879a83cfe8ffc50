package cli

import (
	"bytes"
	"context"
	"os"

	"golang.org/x/term"
)

// quitKeys end a live table: q as in less, and Ctrl-C, which is an ordinary key in raw mode.
const quitKeys = "qQ\x03"

// untilQuit returns a context that ends when the user presses a quit key, and a function that restores the
// terminal.
func (p *plugin) untilQuit(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	file, isFile := p.In.(*os.File)
	if !isFile || !term.IsTerminal(int(file.Fd())) {
		return ctx, cancel
	}
	usual, err := term.MakeRaw(int(file.Fd()))
	if err != nil {
		return ctx, cancel // Ctrl-C still sends a signal
	}
	go func() {
		key := make([]byte, 1)
		for {
			// This goroutine runs until the process ends: nothing else reads from the terminal.
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
