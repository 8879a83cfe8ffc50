// Runs the query of docs/history.md over a generated archive, and compares the answer with that of "kubectl tocsin report".
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import assert from "node:assert/strict";
import { DuckDBInstance } from "@duckdb/node-api";

const root = join(import.meta.dirname, "../../..");
const folder = mkdtempSync(join(tmpdir(), "tocsin-duckdb-"));
const archive = "file://" + folder;
const run = (...command) => execFileSync(command[0], command.slice(1), { cwd: root, env: { ...process.env, TZ: "UTC" }, maxBuffer: 1 << 26 });
try {
  run("go", "run", "./hack/archiveyear", "--archive", archive, "--days", "3", "--per-day", "500", "--end", "2026-05-31");
  // Repeats of records, in more objects of the same days: the newest version of an episode counts once.
  run("go", "run", "./hack/archiveyear", "--archive", archive, "--days", "3", "--per-day", "200", "--end", "2026-05-31");

  const page = readFileSync(join(root, "docs/history.md"), "utf8");
  const statements = [...page.matchAll(/```sql\n([^]*?)```/g)].map((match) => match[1].replaceAll("s3://incidents/", folder + "/"));
  assert.equal(statements.length, 2, "the page has a view and a query");
  const connection = await (await DuckDBInstance.create()).connect();
  await connection.run(statements[0]);
  const rows = (await connection.runAndReadAll(statements[1])).getRowObjectsJson();

  const report = JSON.parse(run("go", "run", "./cmd/kubectl-tocsin", "report", "--archive", archive, "--archive-only", "-A",
    "--from", "2026-05-01", "--to", "2026-05-31", "-o", "json"));
  assert.ok(report.episodes > 1000 && rows.length >= 12, `${report.episodes} episodes in ${rows.length} rows`);
  let sum = 0;
  for (const row of rows) {
    const bar = report.bars.find((one) => one.date === row.day);
    const severity = ["critical", "error", "warning", "info"].indexOf(row.severity);
    assert.equal(Number(row.episodes), bar.counts[severity], `${row.day} ${row.severity}`);
    sum += Number(row.episodes);
  }
  assert.equal(sum, report.episodes);
  console.log(`DuckDB and the report agree on ${sum} episodes in ${rows.length} rows.`);
} finally {
  rmSync(folder, { recursive: true });
}
