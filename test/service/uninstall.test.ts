import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { OperatorError } from '../../src/lib/errors.ts';
import { AGENT_SERVICE, configFolderOf, stateFolderOf } from '../../src/service/service.ts';
import { uninstallService } from '../../src/service/uninstall.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

it.each([
  [Object.assign(new Error('spawn userdel ENOENT'), { code: 'ENOENT' }), 'userdel not found'],
  [undefined, 'userdel: user device-agent is currently used by process 1'],
])(
  '--purge deletes settings and data, and says that the user stays, when userdel fails (%s)',
  async (cause, reason) => {
    const root = temporaryFolder();
    const folders = [configFolderOf(AGENT_SERVICE), stateFolderOf(AGENT_SERVICE)].map((folder) => join(root, folder));
    for (const folder of [...folders, join(root, 'etc')]) mkdirSync(folder, { recursive: true });
    writeFileSync(join(root, 'etc/passwd'), `${AGENT_SERVICE.name}:x:999:999::/:/usr/sbin/nologin\n`);
    const told: string[] = [];
    const host = { root, isBooted: false, run: () => Promise.reject(new OperatorError(reason, 1, { cause })) };
    await uninstallService(AGENT_SERVICE, true, host, (line) => void told.push(line));
    expect(told).toEqual([
      'device-agent is not installed',
      'settings and data deleted',
      `the user device-agent stays: ${reason}; delete it with: userdel device-agent`,
    ]);
    expect(folders.filter(existsSync)).toEqual([]);
  },
);
