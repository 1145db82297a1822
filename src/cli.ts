#!/usr/bin/env node
import { isSupportedNode, OLDEST_NODE } from './node-version.ts';

// Older versions fail while they load the rest, with a stack trace.
if (isSupportedNode(process.version)) {
  await import('./main.ts');
} else {
  process.stderr.write(
    `device-agent: Node.js ${process.version} (${process.execPath}) is too old: install Node.js ${OLDEST_NODE} or newer\n`,
  );
  process.exitCode = 1;
}
