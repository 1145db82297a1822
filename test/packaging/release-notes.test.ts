import { expect, it } from 'vitest';
import { checkRepository, releaseNotes } from '../../scripts/release-notes.js';

const CHANGELOG = `# Changelog

## [Unreleased]

## [1.1.0] - 2026-11-22

### Added

- A thing

## [1.0.0] - 2026-01-01

- The first release
`;

it('releaseNotes returns the section of the tagged version', () => {
  expect(releaseNotes('v1.1.0', '1.1.0', CHANGELOG)).toBe('### Added\n\n- A thing\n');
  expect(releaseNotes('v1.0.0', '1.0.0', CHANGELOG)).toBe('- The first release\n');
});

it('releaseNotes fails when tag, package.json and changelog disagree', () => {
  expect(() => releaseNotes('v1.1.0', '1.0.0', CHANGELOG)).toThrow('tag v1.1.0 does not match version 1.0.0');
  expect(() => releaseNotes('v1.2.0', '1.2.0', CHANGELOG)).toThrow('CHANGELOG.md has no entry for 1.2.0');
});

it('checkRepository fails when package.json does not name the repository that is released', () => {
  checkRepository(undefined, undefined);
  checkRepository({ url: 'git+https://github.com/me/agent.git' }, 'me/agent');
  const url = 'git+https://github.com/me/agent.git';
  expect(() => checkRepository(undefined, 'me/agent')).toThrow(`"url":"${url}"`);
  expect(() => checkRepository({ url: 'git+https://github.com/other/agent.git' }, 'me/agent')).toThrow(url);
});
