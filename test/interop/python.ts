import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { firstOf, programMissing } from '../support/requirements.ts';
import { type Client, NO_OAUTH } from './client.ts';
import { casesOfJunit } from './junit.ts';
import { mustRun, run } from './program.ts';
import { createVenv, inVenv } from './venv.ts';

const VERSION = '1.4.0';
const REPOSITORY = 'https://github.com/ngrok/ngrok-python';
const SUITE = ['test/test.py', 'test/test_connect.py', 'test/test_main.py'];

const WORDING = "the policy is refused, but not in ngrok's words";
const UPSTREAM = 'the upstream is dashboard.ngrok.com';

/** Makes the suite's sessions trust the gateway: the certificate authority is compiled into the SDK. */
const TRUSTING = `
import os
import ngrok

_ca = open(os.environ["SSL_CERT_FILE"], "rb").read()


def _builder(*args, _builder=ngrok.SessionBuilder):
    return _builder(*args).ca_cert(bytearray(_ca))


def _trusting(function):
    def call(*args, **options):
        if "root_cas" not in options:
            options["session_ca_cert"] = bytearray(_ca)
        return function(*args, **options)

    return call


ngrok.SessionBuilder = _builder
ngrok.connect, ngrok.forward = _trusting(ngrok.connect), _trusting(ngrok.forward)
`;

export const python: Client = {
  title: `Python SDK ngrok ${VERSION}`,
  what: 'its tests',
  needs: '`python3`, `git`, pypi.org, github.com',
  missing: () => firstOf(programMissing('python3', '--version'), programMissing('git', '--version')),
  async fetch(sources) {
    await mustRun(['git', 'clone', '--quiet', '--depth=1', '--branch', `v${VERSION}`, REPOSITORY, 'suite'], {
      cwd: sources,
    });
    const beside = ['aiohttp==3.9.5', 'requests==2.28.2', 'pytest==7.4.4', 'pytest-timeout==2.1.0'];
    await createVenv(sources, [`ngrok==${VERSION}`, ...beside]);
    writeFileSync(join(sources, 'sitecustomize.py'), TRUSTING);
  },
  async run(lab, sources) {
    const report = join(sources, 'report.xml');
    const options = { cwd: join(sources, 'suite'), env: { ...lab.env, PYTHONPATH: sources } };
    const { output } = await run([inVenv(sources, 'pytest'), '--junitxml', report, ...SUITE], options);
    const cases = casesOfJunit(
      readFileSync(report, 'utf8'),
      (name, suite) => `${suite.replace(/^test\./, '')} ${name}`,
    );
    return cases.length > 0 ? cases : [{ name: 'suite', status: 'failed', output }];
  },
  expected: {
    'test.TestNgrok test_oauth': NO_OAUTH,
    'test.TestNgrok test_https_listener_with_invalid_policy_action': WORDING,
    'test.TestNgrok test_https_listener_with_invalid_traffic_policy_action': WORDING,
    'test.TestNgrok test_tls_backend': UPSTREAM,
    'test.TestNgrok test_tls_backend_no_verify': UPSTREAM,
    'test_connect.TestNgrokConnect test_tls_backend': UPSTREAM,
    'test_connect.TestNgrokConnect test_tls_backend_no_verify': UPSTREAM,
    'test_connect.TestNgrokConnect test_root_cas': 'connects to ngrok.com',
  },
};
