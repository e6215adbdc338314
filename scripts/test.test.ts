import { expect, test } from "bun:test";
import { totalsOf } from "./test.ts";

test("totalsOf() counts passed, failed and skipped tests of a JUnit report, and names the skipped", () => {
  const report = `<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="bun test" tests="5" failures="1" skipped="2">
  <testsuite name="a.test.ts" file="a.test.ts" tests="5">
    <testcase name="one" classname="group" time="0.1" file="a.test.ts" line="2" assertions="1" />
    <testcase name="two" time="0" file="a.test.ts" line="3" assertions="0">
      <failure type="AssertionError" message="want &lt;3&gt;" />
    </testcase>
    <testcase name="a &lt; b &amp; &quot;c&quot; [needs strace]" time="0" file="a.test.ts" line="4" assertions="0">
      <skipped />
    </testcase>
    <testcase name="later" time="0" file="a.test.ts" line="5" assertions="0">
      <skipped message="" />
    </testcase>
    <testcase name="three" time="0" file="a.test.ts" line="6" assertions="2"></testcase>
  </testsuite>
</testsuites>`;
  expect(totalsOf(report)).toEqual({ passed: 2, failed: 1, skipped: ['a.test.ts: a < b & "c" [needs strace]', "a.test.ts: later"] });
});
