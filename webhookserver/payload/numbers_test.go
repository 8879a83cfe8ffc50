package payload_test

import (
	"testing"

	. "github.com/onsi/gomega"
)

func TestNumbersInBags(t *testing.T) {
	for name, test := range map[string]struct{ literal, stored string }{
		"an integer stays":                          {`42`, `42`},
		"zero stays":                                {`0`, `0`},
		"the largest int64 stays":                   {`9223372036854775807`, `9223372036854775807`},
		"the smallest int64 stays":                  {`-9223372036854775808`, `-9223372036854775808`},
		"2^53+1 stays":                              {`9007199254740993`, `9007199254740993`},
		"a decimal stays":                           {`44.23943737541908`, `44.23943737541908`},
		"0.1 stays, though float64 is not quite it": {`0.1`, `0.1`},
		"a fraction of zeros goes":                  {`1.0`, `1`},
		"zeros behind a fraction go":                {`-2.50`, `-2.5`},
		"an exponent is written out":                {`1e3`, `1000`},
		"a fraction and an exponent are too":        {`12.5E+2`, `1250`},
		"a small one keeps its exponent":            {`0.00000015`, `1.5e-7`},
		"a large one keeps its exponent":            {`1E21`, `1e+21`},
		"the largest float64 stays":                 {`1.7976931348623157e308`, `1.7976931348623157e+308`},
		"the smallest float64 stays":                {`5e-324`, `5e-324`},
		"minus zero is zero":                        {`-0.0`, `0`},
		"zero with a huge exponent is zero":         {`0e99999`, `0`},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			alert, warnings := read(t, `{"values":{"n":`+test.literal+`}}`)
			g.Expect(string(alert.Values["n"])).To(Equal(test.stored))
			g.Expect(warnings).To(BeEmpty())
		})
	}
}

func TestNumbersThatCannotBeStoredExactlyBecomeStrings(t *testing.T) {
	for name, literal := range map[string]string{
		"beyond int64":                       `9223372036854775808`,
		"the largest uint64":                 `18446744073709551615`,
		"23 digits":                          `12345678901234567890123`,
		"2^53+1 with a point":                `9007199254740993.0`,
		"more digits than float64 has":       `0.1234567890123456789`,
		"beyond float64":                     `1e400`,
		"below float64":                      `-1e-400`,
		"an exponent beyond any arithmetic":  `1e99999999999999999999999`,
		"an exponent below any arithmetic":   `1e-99999999999999999999999`,
		"a denormal that is not the nearest": `4.9e-324`,
	} {
		check(t, map[string]example{
			name + " in a bag": {
				payload:  `{"values":{"a":[{"n":` + literal + `}]}}`,
				alert:    `{"status":"firing","values":{"a":[{"n":"` + literal + `"}]}}`,
				warnings: []string{"values.a"},
			},
			name + " in a label": {
				payload: `{"labels":{"a":` + literal + `,"b":[` + literal + `]}}`,
				alert:   `{"status":"firing","labels":{"a":"` + literal + `","b":"[` + literal + `]"}}`,
			},
			name + " at the top level": {
				payload:  `{"n":` + literal + `}`,
				alert:    `{"status":"firing","custom":{"n":"` + literal + `"}}`,
				warnings: []string{"n"},
			},
		})
	}
	check(t, map[string]example{
		"several in one entry give one warning": {
			payload:  `{"custom":{"a":[1e400,2,1e401]}}`,
			alert:    `{"status":"firing","custom":{"a":["1e400",2,"1e401"]}}`,
			warnings: []string{"custom.a"},
		},
	})
}
