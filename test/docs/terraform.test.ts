import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { documentedExample } from '../interop/terraform.ts';
import { programMissing, unless } from '../support/requirements.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

it(
  'the example of docs/terraform.md is formatted as terraform fmt does',
  unless(programMissing('terraform', 'version')),
  () => {
    const example = documentedExample(readFileSync('docs/terraform.md', 'utf8'));
    expect(example).toContain('resource "ngrok_domain"');
    // Creating it needs the provider: npm run interop -- terraform does that. Settings of this machine stay outside.
    const env = { PATH: process.env.PATH, HOME: temporaryFolder() };
    expect(execFileSync('terraform', ['fmt', '-'], { input: example, encoding: 'utf8', env })).toBe(example);
  },
);
