package origins

// Merge returns the text for content that a newer alert was folded into: what the newer one gave comes from it, and what it did
// not give, from where it came before. Of the fields kept, the content keeps the older ones although the newer alert has them.
//
// If nothing is known of the newer alert, nothing is known of the content: it would be explained by an older alert than the one
// that users ask about.
func Merge(older, newer string, kept ...Field) string {
	if older == newer && len(kept) == 0 {
		return older // as for most repeats
	}
	merged, known := Parse(newer)
	if !known {
		return ""
	}
	was, _ := Parse(older)
	merged.Earlier = [Count]bool{} // nothing of one alert is of an earlier one
	for _, f := range kept {
		merged.Kinds[f], merged.Keys[f] = Absent, ""
	}
	for i, kind := range merged.Kinds {
		f := Field(i)
		if kind != Absent || f == Status || f == ExpiresAt { // which are of the newest alert alone
			continue
		}
		before := was.Kinds[f]
		if before == Mapping && was.Mapping != merged.Mapping || before.isOfPreset() && was.Preset != merged.Preset {
			continue // by an expression of which the digests do not tell
		}
		merged.Kinds[f], merged.Keys[f], merged.Earlier[f] = before, was.Keys[f], before != Absent && !before.isDefault()
	}
	text := merged.String()
	if text == older {
		return older // one copy
	}
	return text
}

// Set returns the text with another kind of a field. It stays empty if nothing is known.
func Set(text string, field Field, kind Kind) string {
	o, known := Parse(text)
	if !known {
		return ""
	}
	o.Kinds[field], o.Earlier[field] = kind, false
	return o.String()
}
