import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import {
  changeAccountKey,
  nextAccountKey,
  noteRevocation,
  pendingRevocations,
} from '../../../src/gateway/certificates/certificate-errands.ts';
import { doPending } from '../../../src/gateway/certificates/run-errands.ts';
import { openStore, type Store } from '../../../src/gateway/store/store.ts';
import { SecretsBox } from '../../../src/lib/secrets-box.ts';
import { issueCertificate } from '../../support/certificates.ts';
import { startTestGateway } from '../../support/gateway.ts';
import { recordingLog } from '../../support/silent-log.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';

const neverAborted = new AbortController().signal;

describe('errands at the CA', () => {
  let store: Store;
  let recording: ReturnType<typeof recordingLog>;
  beforeEach(() => {
    store = openStore(join(temporaryFolder(), 'gateway.db'), new SecretsBox(randomBytes(32)));
    recording = recordingLog();
    return () => store.database.close();
  });

  async function pending(name: string, notAfter?: Date): Promise<string> {
    const dates = notAfter && { notBefore: new Date(notAfter.getTime() - 1000), notAfter };
    const { certificatePem } = await issueCertificate({ subject: `CN=${name}`, names: [name], ...dates });
    await store.database.write(() => noteRevocation(store.database, certificatePem, 'keyCompromise'));
    return certificatePem;
  }
  /** @param answers by certificate: why it is refused; null: it is revoked; an error: it failed */
  const run = (answers: Map<string, string | null | Error>, changeKey: () => Promise<string | null>) => {
    const revoke = async (certificate: string) => {
      const answer = answers.get(certificate) ?? null;
      if (answer instanceof Error) throw answer;
      return answer;
    };
    const ca = { revoke, changeAccountKey: changeKey };
    return doPending({ store, log: recording.log }, async () => ca, neverAborted);
  };
  const left = () => pendingRevocations(store.database).map(({ certificate }) => certificate);
  const logged = () => recording.lines.map(({ level, msg, reason }) => [level, msg, reason]);
  const unchanged = async () => null;

  it('are done although an earlier one fails, which is tried again', async () => {
    const failing = await pending('failing.example.test');
    await pending('other.example.test');
    await expect(run(new Map([[failing, new Error('unreachable')]]), unchanged)).rejects.toThrow('unreachable');
    expect(left()).toEqual([failing]);
    expect(logged()).toEqual([[30, 'certificate revoked', undefined]]);
  });

  it('are given up when the CA refuses, or the certificate has expired', async () => {
    const refused = await pending('refused.example.test');
    await pending('old.example.test', new Date(Date.now() - 1000));
    await run(new Map([[refused, 'of another account']]), unchanged);
    expect(left()).toEqual([]);
    expect(logged()).toEqual([
      [50, 'certificate not revoked: its CA refuses', 'of another account'],
      [50, 'certificate not revoked: it has expired', undefined],
    ]);
  });

  it('are done although the key of the account cannot be changed', async () => {
    await pending('leaked.example.test');
    const refused = await pending('refused.example.test');
    await changeAccountKey(store);
    const answers = new Map([[refused, 'wrong key']]);
    await expect(run(answers, () => Promise.reject(new Error('no change')))).rejects.toThrow('no change');
    // The CA may have refused the old key.
    expect(left()).toEqual([refused]);
    expect(nextAccountKey(store)).not.toBeNull();
    await run(answers, async () => 'not here');
    expect(nextAccountKey(store)).toBeNull();
    expect(left()).toEqual([]);
    expect(logged()).toContainEqual([50, 'key of the ACME account not changed: its CA refuses', 'not here']);
  });

  it('cost nothing while there are none: no signal is combined, which leaks memory on a long-lived one', async () => {
    const any = vi.spyOn(AbortSignal, 'any');
    try {
      await run(new Map(), unchanged);
      expect(any).not.toHaveBeenCalled();
      await pending('leaked.example.test');
      await run(new Map(), unchanged);
      expect(any.mock.calls.flat(2)).not.toContain(neverAborted);
    } finally {
      any.mockRestore();
    }
  });
});

it('a gateway without an ACME CA says that it cannot revoke what is to be revoked', async () => {
  const dataDir = temporaryFolder();
  const first = await startTestGateway({ dataDir });
  const { certificatePem } = await issueCertificate({ subject: 'CN=leaked', names: ['leaked.example.test'] });
  await first.store.database.write(() => noteRevocation(first.store.database, certificatePem, 'keyCompromise'));
  await first.close();
  const { log, lines } = recordingLog();
  const gateway = await startTestGateway({ dataDir, log });
  onTestFinished(() => gateway.close());
  expect(lines).toContainEqual(
    expect.objectContaining({ names: 1, msg: 'certificates not revoked: no ACME CA is set' }),
  );
});
