import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { LiveEndpoint } from '../../../src/gateway/endpoints/live-view.ts';
import { issueCertificate } from '../../support/certificates.ts';
import {
  type Answer,
  BASE_URL,
  type ManagementServer,
  startManagementServer,
} from '../../support/management-server.ts';

const ONLINE: Partial<LiveEndpoint> = { host: 'busy.example.com', port: 443, edgeId: null };

let server: ManagementServer;
let backendId: string;
let groupId: string;
let ipPolicyId: string;
let authorityId: string;
beforeAll(async () => {
  server = await startManagementServer({ live: { endpoints: () => [ONLINE as LiveEndpoint] } });
  backendId = (await server.call('POST', '/backends/http_response', { body: 'hi' })).id;
  groupId = (await server.call('POST', '/backends/tunnel_group', { labels: { app: 'web' } })).id;
  ipPolicyId = (await server.call('POST', '/ip_policies', {})).id;
  const { certificatePem } = await issueCertificate({ subject: 'CN=ca', ca: true });
  authorityId = (await server.call('POST', '/certificate_authorities', { ca_pem: certificatePem })).id;
});
afterAll(() => server.close());

let counter = 0;
function freshHostport(): string {
  counter += 1;
  return `e${counter}.example.com:443`;
}
function create(body: unknown = {}): Promise<Answer> {
  return server.call('POST', '/edges/tls', body);
}
function update(id: string, body: unknown): Promise<Answer> {
  return server.call('PATCH', `/edges/tls/${id}`, body);
}
function read(id: string): Promise<Answer> {
  return server.call('GET', `/edges/tls/${id}`);
}
function refusal(code: number) {
  return { status: 400, body: { error_code: `ERR_NGROK_${code}`, status_code: 400 } };
}

/** For each module: a body, its response, another body and its response. */
function modules(): Record<string, [body: object, shown: object, other: object, otherShown: object]> {
  const ref = (path: string, id: string) => ({ id, uri: `${BASE_URL}${path}/${id}` });
  const policies = { ip_policies: [ref('/ip_policies', ipPolicyId)] };
  const authorities = { certificate_authorities: [ref('/certificate_authorities', authorityId)] };
  return {
    backend: [
      { backend_id: backendId },
      { enabled: true, backend: ref('/backends/http_response', backendId) },
      { enabled: false, backend_id: groupId },
      { enabled: false, backend: ref('/backends/tunnel_group', groupId) },
    ],
    ip_restriction: [
      { enabled: false, ip_policy_ids: [ipPolicyId] },
      { enabled: false, ...policies },
      { ip_policy_ids: [ipPolicyId] },
      { enabled: true, ...policies },
    ],
    mutual_tls: [
      { enabled: false, certificate_authority_ids: [authorityId] },
      { enabled: false, ...authorities },
      { certificate_authority_ids: [authorityId] },
      { enabled: true, ...authorities },
    ],
    tls_termination: [
      { terminate_at: 'edge', min_version: '1.3' },
      { enabled: true, terminate_at: 'edge', min_version: '1.3' },
      { enabled: false, terminate_at: 'edge' },
      { enabled: false, terminate_at: 'edge', min_version: null },
    ],
    traffic_policy: [
      { enabled: false, value: ' {"on_tcp_connect": []}\n' },
      { enabled: false, value: ' {"on_tcp_connect": []}\n' },
      { value: '{}' },
      { enabled: true, value: '{}' },
    ],
  };
}
const MODULE_NAMES = ['backend', 'ip_restriction', 'mutual_tls', 'tls_termination', 'traffic_policy'];

describe('POST /edges/tls', () => {
  it('accepts an empty body and answers unset members as null', async () => {
    const { status, body, id } = await create();
    expect(status).toBe(201);
    expect(body).toEqual({
      id: expect.stringMatching(/^edgtls_[0-9A-Za-z]{27}$/),
      uri: `${BASE_URL}/edges/tls/${id}`,
      created_at: expect.stringMatching(/Z$/),
      description: null,
      metadata: null,
      hostports: null,
      backend: null,
      ip_restriction: null,
      mutual_tls: null,
      tls_termination: null,
      traffic_policy: null,
      policy: null,
    });
  });

  it('accepts all members and keeps the order of hostports', async () => {
    const all = modules();
    const hostports = [freshHostport(), '*.Dev.Example.com:8443', freshHostport()];
    const sent = Object.fromEntries(MODULE_NAMES.map((name) => [name, all[name]?.[0]]));
    const { status, body, id } = await create({ description: 'd', metadata: 'm', hostports, ...sent });
    expect(status).toBe(201);
    expect(body).toMatchObject({
      description: 'd',
      metadata: 'm',
      hostports: [hostports[0], '*.dev.example.com:8443', hostports[2]],
      ...Object.fromEntries(MODULE_NAMES.map((name) => [name, all[name]?.[1]])),
    });
    expect((await read(id)).body).toEqual(body);
    const list = await server.call('GET', '/edges/tls?limit=1');
    expect(list.body).toMatchObject({ tls_edges: [body], uri: `${BASE_URL}/edges/tls` });
    expect((await server.call('DELETE', `/edges/tls/${id}`)).status).toBe(204);
    expect((await read(id)).body).toMatchObject({ status_code: 404, error_code: 'ERR_NGROK_7000' });
    expect((await create({ hostports })).status).toBe(201);
  });

  it('accepts at most 255 bytes of description and 4096 of metadata', async () => {
    expect((await create({ description: 'x'.repeat(255), metadata: 'x'.repeat(4096) })).status).toBe(201);
    expect(await create({ description: `${'ü'.repeat(127)}xx` })).toMatchObject(refusal(7073));
    expect(await create({ metadata: 'x'.repeat(4097) })).toMatchObject(refusal(7074));
  });

  it.each([
    [{ hostports: ['example.com'] }, 7104],
    [{ hostports: ['no domain:443'] }, 7104],
    [{ hostports: ['a.example.com:0'] }, 7112],
    [{ hostports: ['a.example.com:65536'] }, 7112],
    [{ hostports: 'a.example.com:443' }, 215],
    [{ hostports: ['twice.example.com:443', 'TWICE.example.com:443'] }, 215],
    [{ hostports: Array.from({ length: 1001 }, (_, n) => `a${n}.example.com:443`) }, 7129],
    [{ hostports: ['busy.example.com:443'] }, 7132],
    [{ hostports: ['connect.gateway.test:443'] }, 450],
    [{ hostports: ['sign-in.gateway.test:443'] }, 450],
    [{ hostports: ['api.gateway.test:9443'] }, 450],
    [{ policy: {} }, 214],
    [{ backend: {} }, 242],
    [{ backend: { backend_id: 'ipp_1' } }, 242],
    [{ backend: { backend_id: 'bkdfo_1' } }, 6527],
    [{ backend: { backend_id: 'bkdhr_unknown' } }, 6501],
    [{ backend: { enabled: 'yes', backend_id: 'bkdhr_unknown' } }, 215],
    [{ ip_restriction: { ip_policy_ids: [] } }, 7025],
    [{ ip_restriction: { ip_policy_ids: ['x'] } }, 229],
    [{ ip_restriction: { ip_policy_ids: ['ipp_unknown'] } }, 7007],
    [{ mutual_tls: { certificate_authority_ids: ['x'] } }, 228],
    [{ mutual_tls: { certificate_authority_ids: ['ca_unknown'] } }, 7072],
    [{ mutual_tls: { certificate_authority_ids: Array.from({ length: 11 }, (_, i) => `ca_${i}`) } }, 7075],
    [{ tls_termination: { terminate_at: 'agent' } }, 224],
    [{ tls_termination: { terminate_at: 'edge', min_version: '1.4' } }, 219],
    [{ tls_termination: { terminate_at: 'upstream', min_version: '1.2' } }, 1632],
    [{ traffic_policy: { value: 'nonsense' } }, 2236],
    [{ traffic_policy: { value: 'on_tcp_connect:\n  - actions: [{ type: denny }]' } }, 2201],
    [{ traffic_policy: { value: '{"on_http_request":[{"actions":[{"type":"deny"}]}]}' } }, 2230],
    [
      {
        traffic_policy: {
          value: 'on_tcp_connect: [{ actions: [{ type: terminate-tls, config: { min_version: "1.3" } }] }]',
        },
      },
      2204,
    ],
    [{ traffic_policy: {} }, 215],
    [{ backend: { other: null } }, 214],
  ])('refuses %j with ERR_NGROK_%i', async (body, code) => {
    expect(await create(body)).toMatchObject(refusal(code));
  });

  it('refuses a hostport of another edge', async () => {
    const hostport = freshHostport();
    await create({ hostports: [hostport] });
    expect(await create({ hostports: [freshHostport(), hostport] })).toMatchObject(refusal(7122));
    expect((await create({ hostports: [hostport.replace('443', '8443')] })).status).toBe(201);
  });
});

describe('PATCH /edges/tls/{id}', () => {
  it('keeps members that it does not send', async () => {
    const all = modules();
    const sent = Object.fromEntries(MODULE_NAMES.map((name) => [name, all[name]?.[0]]));
    const { id, body } = await create({ description: 'd', metadata: 'm', hostports: [freshHostport()], ...sent });
    const changed = await update(id, { id, metadata: 'new' });
    expect(changed.body).toEqual({ ...body, metadata: 'new' });
    const nulls = Object.fromEntries([...MODULE_NAMES, 'hostports', 'description'].map((name) => [name, null]));
    expect((await update(id, nulls)).body).toEqual(changed.body);
  });

  it.each(MODULE_NAMES)('replaces the %s module as a whole', async (name) => {
    const [body, , other, otherShown] = modules()[name] ?? [];
    const { id } = await create({ [name]: body });
    expect((await update(id, { [name]: other })).body[name]).toEqual(otherShown);
  });

  it('frees all hostports with an empty list', async () => {
    const hostports = [freshHostport()];
    const { id } = await create({ hostports });
    expect((await update(id, { hostports: [] })).body.hostports).toEqual([]);
    expect((await create({ hostports })).status).toBe(201);
  });

  it('accepts its own hostports again', async () => {
    const hostports = [freshHostport(), freshHostport()];
    const { id } = await create({ hostports });
    expect((await update(id, { hostports: hostports.toReversed() })).body.hostports).toEqual(hostports.toReversed());
  });

  it('changes nothing when one member is refused', async () => {
    const { id, body } = await create({ hostports: [freshHostport()], backend: { backend_id: backendId } });
    const half = { description: 'x', hostports: [freshHostport()], backend: { backend_id: groupId } };
    expect(await update(id, { ...half, mutual_tls: { certificate_authority_ids: ['ca_x'] } })).toMatchObject(
      refusal(7072),
    );
    expect((await read(id)).body).toEqual(body);
    expect((await create({ hostports: half.hostports })).status).toBe(201);
  });

  it('is refused when it conflicts with an unchanged module', async () => {
    const { id } = await create({ mutual_tls: { certificate_authority_ids: [authorityId] } });
    const upstream = { terminate_at: 'upstream' };
    expect(await update(id, { tls_termination: upstream })).toMatchObject(refusal(7062));
    expect(await server.call('PUT', `/edges/tls/${id}/tls_termination`, upstream)).toMatchObject(refusal(7062));
    await server.call('PUT', `/edges/tls/${id}/mutual_tls`, {
      enabled: false,
      certificate_authority_ids: [authorityId],
    });
    const { body } = await update(id, { tls_termination: upstream });
    expect(body.tls_termination).toEqual({ enabled: true, terminate_at: 'upstream', min_version: null });
  });

  it('changes an edge whose backend was deleted', async () => {
    const backend = await server.call('POST', '/backends/http_response');
    const { id, body } = await create({ backend: { backend_id: backend.id } });
    expect((await server.call('DELETE', `/backends/http_response/${backend.id}`)).status).toBe(204);
    expect((await update(id, { description: 'still there' })).body.backend).toEqual(body.backend);
  });
});

describe.each(MODULE_NAMES)('/edges/tls/{id}/%s', (name) => {
  const path = (id: string) => `/edges/tls/${id}/${name}`;

  it('supports PUT, GET, replacement as a whole and DELETE', async () => {
    const [body, shown, other, otherShown] = modules()[name] ?? [];
    const { id } = await create();
    expect((await server.call('GET', path(id))).status).toBe(404);
    expect((await server.call('DELETE', path(id))).status).toBe(204);
    expect(await server.call('PUT', path(id), body)).toMatchObject({ status: 200, body: shown });
    expect((await server.call('GET', path(id))).body).toEqual(shown);
    expect((await read(id)).body[name]).toEqual(shown);
    expect((await server.call('PUT', path(id), other)).body).toEqual(otherShown);
    expect((await server.call('DELETE', path(id))).status).toBe(204);
    expect((await read(id)).body[name]).toBeNull();
  });
});

describe('DELETE of resources that an edge uses', () => {
  it('is refused for IP policies and certificate authorities', async () => {
    const policy = await server.call('POST', '/ip_policies');
    const { certificatePem } = await issueCertificate({ subject: 'CN=other', ca: true });
    const authority = await server.call('POST', '/certificate_authorities', { ca_pem: certificatePem });
    const { id } = await create({
      ip_restriction: { ip_policy_ids: [policy.id] },
      mutual_tls: { certificate_authority_ids: [authority.id] },
    });
    const paths = [`/ip_policies/${policy.id}`, `/certificate_authorities/${authority.id}`];
    for (const path of paths) expect((await server.call('DELETE', path)).status).toBe(400);
    await server.call('DELETE', `/edges/tls/${id}`);
    for (const path of paths) expect((await server.call('DELETE', path)).status).toBe(204);
  });
});
