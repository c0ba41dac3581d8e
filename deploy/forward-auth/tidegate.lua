-- Asks Tidegate about a request of HAProxy, and answers a refused one: http-request lua.tidegate URL. See
-- docs/FORWARD_AUTH.md.

-- Fields of the client that are none of the question: they frame its body, or name a request.
local LEFT_OUT = {
    ["connection"] = true,
    ["content-length"] = true,
    ["expect"] = true,
    ["transfer-encoding"] = true,
    ["upgrade"] = true,
    ["x-original-method"] = true,
    ["x-original-uri"] = true,
    ["x-original-url"] = true,
}

-- Fields of the answer, and the variables that keep them.
local KEPT = {
    ["x-tidegate-decision"] = "txn.tidegate_decision",
    ["x-tidegate-class"] = "txn.tidegate_class",
    ["x-tidegate-operator"] = "txn.tidegate_operator",
    ["ratelimit"] = "txn.tidegate_ratelimit",
    ["ratelimit-policy"] = "txn.tidegate_ratelimit_policy",
}

-- Fields of a refusal that HAProxy writes itself.
local OWN = { ["connection"] = true, ["content-length"] = true, ["transfer-encoding"] = true }

local function question(txn)
    local fields = {}
    for name, values in pairs(txn.http:req_get_headers()) do
        if not LEFT_OUT[name] then
            fields[name] = values
        end
    end
    fields["x-forwarded-method"] = { txn.f:method() }
    fields["x-forwarded-uri"] = { txn.f:pathq() }
    fields["x-forwarded-host"] = { txn.sf:req_hdr("host") }
    fields["x-forwarded-for"] = { txn.f:src() }
    fields["x-forwarded-proto"] = { txn.f:ssl_fc() == 1 and "https" or "http" }
    return fields
end

core.register_action("tidegate", { "http-req" }, function(txn, url)
    local answer = core.httpclient():get{ url = url, headers = question(txn), timeout = 5000 }
    local status = answer and tonumber(answer.status) or 0
    if status == 200 then
        for name, variable in pairs(KEPT) do
            local values = answer.headers[name]
            if values then
                txn:set_var(variable, values[0] or values[1])
            end
        end
        return
    end
    -- Without an answer, the site is unavailable. Return here instead to let requests pass.
    local reply = txn:reply{ status = status >= 400 and status or 503, body = answer and answer.body or "" }
    for name, values in pairs(answer and answer.headers or {}) do
        if not OWN[name] then
            for _, value in pairs(values) do
                reply:add_header(name, value)
            end
        end
    end
    txn:done(reply)
end, 1)
