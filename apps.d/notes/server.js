'use strict'
// Notes: a small web app without a framework. Its database is one JSON file below $HOME.
//
//   GET    /               a page with a form
//   POST   /               the form
//   GET    /api/notes      [{"id","text","at"}]
//   POST   /api/notes      {"text"} -> the new note
//   DELETE /api/notes/ID
const fs = require('fs')
const http = require('http')
const os = require('os')
const path = require('path')

const DIR = path.join(os.homedir(), '.local', 'share', 'sbxsv-notes')
const FILE = path.join(DIR, 'notes.json')
const MAX_BODY = 64 * 1024
const MAX_NOTES = 10000

function load () {
  try {
    return JSON.parse(fs.readFileSync(FILE, 'utf8'))
  } catch (e) {
    if (e.code === 'ENOENT') return []
    throw e // a broken database is not overwritten
  }
}

// Written beside the old file and renamed: after a crash there is the old one or the new one, whole.
function save (notes) {
  const tmp = FILE + '.tmp'
  const fd = fs.openSync(tmp, 'w', 0o600)
  try {
    fs.writeSync(fd, JSON.stringify(notes))
    fs.fsyncSync(fd)
  } finally {
    fs.closeSync(fd)
  }
  fs.renameSync(tmp, FILE)
}

fs.mkdirSync(DIR, { recursive: true, mode: 0o700 })
const notes = load()

function add (text) {
  const note = { id: notes.reduce((m, n) => Math.max(m, n.id), 0) + 1, text, at: new Date().toISOString() }
  save([...notes, note]) // when this fails, memory and disk still agree
  notes.push(note)
  return note
}

function remove (id) {
  const i = notes.findIndex(n => n.id === id)
  if (i < 0) return false
  save(notes.filter(n => n.id !== id))
  notes.splice(i, 1)
  return true
}

const escape = s => s.replace(/[&<>"']/g, c => `&#${c.charCodeAt(0)};`)

function page () {
  const items = notes.map(n => `<li>${escape(n.text)} <small>${escape(n.at)}</small></li>`).join('\n')
  return `<!doctype html>
<html lang="en"><meta charset="utf-8"><title>notes</title>
<h1>Notes</h1>
<form method="post" action="/"><input name="text" autofocus required maxlength="1000"> <button>Add</button></form>
<ul>
${items}
</ul>
<p><small>${escape(FILE)}</small></p></html>
`
}

function answer (res, status, type, body) {
  res.writeHead(status, { 'Content-Type': type, 'Content-Length': Buffer.byteLength(body), 'X-Content-Type-Options': 'nosniff' })
  res.end(body)
}
const json = (res, status, value) => answer(res, status, 'application/json', JSON.stringify(value) + '\n')

function body (req, done) {
  const chunks = []
  let size = 0
  req.on('data', c => {
    size += c.length
    if (size <= MAX_BODY) chunks.push(c)
  })
  req.on('end', () => size > MAX_BODY ? done(null) : done(Buffer.concat(chunks).toString('utf8')))
}

function textOf (type, raw) {
  if (raw === null) return null
  if (!type.startsWith('application/json')) return new URLSearchParams(raw).get('text')
  try {
    return JSON.parse(raw).text
  } catch {
    return null
  }
}

// A page of another site must not be able to write here through the visitor's browser.
function foreign (req) {
  const origin = req.headers.origin
  if (!origin) return false
  try {
    return new URL(origin).host !== req.headers.host
  } catch {
    return true
  }
}

function create (req, res, isForm) {
  body(req, raw => {
    const text = textOf(req.headers['content-type'] || '', raw)
    if (typeof text !== 'string' || !text.trim() || text.length > 1000 || notes.length >= MAX_NOTES) {
      return json(res, 400, { error: 'a note is a text of 1 to 1000 characters' })
    }
    try {
      const note = add(text.trim())
      if (!isForm) return json(res, 201, note)
    } catch (e) {
      return json(res, 500, { error: `not saved: ${e.message}` })
    }
    res.writeHead(303, { Location: '/' })
    res.end()
  })
}

function handle (req, res) {
  const where = req.url.split('?')[0]
  const id = /^\/api\/notes\/([0-9]{1,9})$/.exec(where)
  if (req.method === 'GET' && where === '/') return answer(res, 200, 'text/html; charset=utf-8', page())
  if (req.method === 'GET' && where === '/api/notes') return json(res, 200, notes)
  if (req.method !== 'GET' && foreign(req)) return json(res, 403, { error: 'from another site' })
  if (req.method === 'POST' && (where === '/' || where === '/api/notes')) return create(req, res, where === '/')
  if (req.method === 'DELETE' && id) {
    try {
      return json(res, remove(Number(id[1])) ? 200 : 404, {})
    } catch (e) {
      return json(res, 500, { error: `not saved: ${e.message}` })
    }
  }
  json(res, 404, { error: 'no such page' })
}

const server = http.createServer(handle)
server.listen(Number(process.env.PORT), () => console.log(`notes: ${notes.length} in ${FILE}, port ${process.env.PORT}`))
process.on('SIGTERM', () => {
  console.log('notes: ending')
  server.close(() => process.exit(0))
  server.closeIdleConnections()
})
