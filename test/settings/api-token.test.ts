import { readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { OperatorError } from '../../src/lib/errors.ts';
import { loadSettings } from '../../src/settings/agent-settings.ts';
import { apiTokenIfAny, openApiToken } from '../../src/settings/api-token.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

const setUp = async (env: Record<string, string> = {}) => {
  const folder = temporaryFolder();
  return { settings: loadSettings({ DATA_DIR: folder, ...env }, folder), file: join(folder, 'api-token') };
};

describe('the API token', () => {
  it('is generated once, readable only by its owner, and read by agent and command line', async () => {
    const { settings, file } = await setUp();
    expect(apiTokenIfAny(settings)).toBeNull();
    const made = await openApiToken(settings);
    expect(made).toEqual({ file, token: expect.stringMatching(/^[\w-]{32}$/) });
    expect((await stat(file)).mode & 0o777).toBe(0o600);
    expect(await openApiToken(settings)).toEqual(made);
    expect(apiTokenIfAny(settings)).toBe(made.token);
  });

  it('is not generated when a setting gives it', async () => {
    const { settings, file } = await setUp({ AGENT_API_TOKEN: 'a-token-of-my-own' });
    expect(await openApiToken(settings)).toEqual({ token: 'a-token-of-my-own', file: null });
    await expect(stat(file)).rejects.toThrow('ENOENT');
  });

  it('is not replaced when its file is damaged', async () => {
    const { settings, file } = await setUp();
    await writeFile(file, 'torn');
    await expect(openApiToken(settings)).rejects.toThrow(OperatorError);
    await expect(openApiToken(settings)).rejects.toThrow(`damaged API token ${file}: write the token into it again`);
    expect(await readFile(file, 'utf8')).toBe('torn');
    expect(apiTokenIfAny(settings)).toBeNull();
  });
});
